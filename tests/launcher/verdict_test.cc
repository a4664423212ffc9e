#include "launcher/verdict.h"

#include <csignal>

#include <gtest/gtest.h>

namespace pushpull::launcher {
namespace {

using namespace std::chrono_literals;

constexpr int exited(int code) { return code << 8; }

class VerdictTest : public testing::Test {
 protected:
  Verdict verdict(int workers) {
    Verdict made(workers, start_);
    for (int rank = 0; rank < workers; ++rank) made.started(rank, "node", 100 + rank);
    return made;
  }
  const Clock::time_point start_ = Clock::now();
};

TEST_F(VerdictTest, AllWell) {
  Verdict v = verdict(2);
  v.ended(0, 0, start_);
  EXPECT_FALSE(v.all_ended());
  EXPECT_EQ(v.still_running(), std::vector<int>{1});
  v.ended(1, 0, start_);
  EXPECT_TRUE(v.all_ended());
  EXPECT_EQ(v.exit_code(), 0);
  EXPECT_TRUE(v.report("").empty());
}

TEST_F(VerdictTest, FirstFailureDecides) {
  Verdict v = verdict(3);
  v.ended(0, 0, start_);
  v.ended(2, exited(3), start_ + 1s);
  v.ended(1, exited(7), start_ + 2s);
  EXPECT_EQ(v.exit_code(), 3);
  EXPECT_EQ(v.first_failure(), "rank 2 failed (exit code 3)");
  EXPECT_EQ(v.report("").back(), "the others: rank 0 exit code 0, rank 1 exit code 7");
}

TEST_F(VerdictTest, ADeathBySignalIsTheCauseOfFailuresAtTheSameMoment) {
  Verdict v = verdict(3);
  v.ended(0, exited(75), start_ + 1000ms);
  v.ended(1, exited(1), start_ + 1010ms);
  v.ended(2, SIGKILL, start_ + 1020ms);
  EXPECT_EQ(v.exit_code(), 137);
}

TEST_F(VerdictTest, ALaterDeathBySignalIsAConsequence) {
  Verdict v = verdict(2);
  v.ended(0, exited(1), start_ + 1s);
  v.ended(1, SIGKILL, start_ + 3s);
  EXPECT_EQ(v.exit_code(), 1);
}

TEST_F(VerdictTest, CoreDumpsCountAsTheirSignal) {
  Verdict v = verdict(1);
  v.ended(0, SIGSEGV | 0x80, start_);
  EXPECT_EQ(v.exit_code(), 139);
}

TEST_F(VerdictTest, NotStartedEndsTheRest) {
  Verdict v(3, start_);
  v.started(0, "node", 100);
  v.not_started(1, "command not found: 'x'", 127, start_);
  EXPECT_FALSE(v.all_ended());
  EXPECT_EQ(v.still_running(), std::vector<int>{0});
  v.ended(0, SIGTERM, start_ + 1s);
  EXPECT_TRUE(v.all_ended());
  EXPECT_EQ(v.exit_code(), 127);
  EXPECT_EQ(v.report("").front(), "rank 1 could not be started: command not found: 'x'");
}

TEST_F(VerdictTest, InterruptedWorkersAreNoFailures) {
  Verdict v = verdict(2);
  v.interrupted(SIGINT);
  v.ended(0, SIGINT, start_);
  v.ended(1, exited(1), start_);
  EXPECT_EQ(v.exit_code(), 130);
  EXPECT_TRUE(v.report("").empty());
}

TEST_F(VerdictTest, InterruptedButWell) {
  Verdict v = verdict(2);
  v.interrupted(SIGTERM);
  v.ended(0, 0, start_);
  v.ended(1, 0, start_);
  EXPECT_EQ(v.exit_code(), 0);
}

TEST_F(VerdictTest, InterruptedAndToBeRestarted) {
  Verdict v = verdict(2);
  v.interrupted(SIGTERM);
  v.ended(0, SIGTERM, start_);
  v.ended(1, exited(75), start_);
  EXPECT_EQ(v.exit_code(), 75);
}

TEST_F(VerdictTest, FailureBeforeTheInterruptStays) {
  Verdict v = verdict(2);
  v.ended(0, exited(3), start_);
  v.interrupted(SIGINT);
  v.ended(1, SIGINT, start_ + 1s);
  EXPECT_EQ(v.exit_code(), 3);
}

TEST_F(VerdictTest, TimedOut) {
  Verdict v = verdict(1);
  v.timed_out();
  v.ended(0, SIGTERM, start_);
  EXPECT_EQ(v.exit_code(), 124);
  EXPECT_EQ(v.report("").front(), "the job was ended by its timeout");
}

TEST_F(VerdictTest, StarterFailed) {
  Verdict v(2, start_);
  v.failed("mpirun ended with exit code 1 before the workers did; missing rank 0, 1", 1);
  EXPECT_TRUE(v.has_failed());
  EXPECT_EQ(v.exit_code(), 1);
}

TEST_F(VerdictTest, LastLinesAreShown) {
  Verdict v = verdict(1);
  for (int i = 0; i < 10'000; ++i) v.lines(0, "[0] line " + std::to_string(i) + "\n");
  v.ended(0, exited(1), start_);
  const auto report = v.report("");
  ASSERT_EQ(report.size(), 12u);  // the failure, the heading, ten lines
  EXPECT_EQ(report[2], "  [0] line 9990");
  EXPECT_EQ(report.back(), "  [0] line 9999");
}

TEST_F(VerdictTest, AHugeLastLineIsCut) {
  Verdict v = verdict(1);
  v.lines(0, std::string(10'000'000, 'x') + "\n");
  v.ended(0, exited(1), start_);
  EXPECT_LT(v.report("").back().size(), 1000u);
}

}  // namespace
}  // namespace pushpull::launcher
