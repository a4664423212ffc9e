// Ranks that end while the others wait for them: what every survivor gets to say before mpirun,
// which ends a job with its first dead rank, ends it too.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace pushpull::testing {
namespace {

struct Outcome {
  int code = 0;
  std::string output;
};

// `grace`: seconds that mpirun leaves the survivors, before SIGTERM and again before SIGKILL.
Outcome run_job(const std::string& how, int ranks, int grace,
                std::vector<std::string> options = {}) {
  const TemporaryDirectory directory;
  const std::string output = directory.path() + "/output";
  std::vector<std::string> words{
      PUSHPULL_MPIRUN, "--allow-run-as-root",       "--oversubscribe",    "--bind-to", "none",
      "--mca",         "odls_base_sigkill_timeout", std::to_string(grace)};
  words.insert(words.end(), options.begin(), options.end());
  for (const std::string& word :
       {std::string("-n"), std::to_string(ranks), std::string(PUSHPULL_VICTIM), how})
    words.push_back(word);
  auto process = Process::start(words, output);
  EXPECT_TRUE(process) << process.error().message();
  if (!process) return {};
  const int code = process->wait();
  return {code, read_file(output)};
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    lines.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return lines;
}

// The line in which a rank says what happened.
std::string said(const Outcome& outcome, int rank, int ranks) {
  const std::string start = fmt::format("rank {} of {}: ", rank, ranks);
  for (const std::string& line : words(outcome.output))
    if (line.rfind(start, 0) == 0) return line.substr(start.size());
  return {};
}

void expect_survivors_name(const Outcome& outcome, int ranks, const std::string& code) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == 1) continue;
    const std::string line = said(outcome, rank, ranks);
    EXPECT_EQ(line.rfind(code + ", culprit 1: ", 0), 0u)
        << "rank " << rank << " said '" << line << "'\n"
        << outcome.output;
    EXPECT_NE(line.find("rank 1"), std::string::npos) << line;
  }
}

TEST(MpiDeath, SurvivorsOfAKillNameTheDead) {
  for (int ranks : {2, 4}) {
    const Outcome outcome = run_job("kill", ranks, 10);
    expect_survivors_name(outcome, ranks, "PeerLost");
    EXPECT_NE(outcome.code, 0);
  }
}

TEST(MpiDeath, SurvivorsOfAKillNameTheDeadOverTcp) {
  const Outcome outcome = run_job("kill", 3, 10, {"--mca", "btl", "tcp,self"});
  expect_survivors_name(outcome, 3, "PeerLost");
}

TEST(MpiDeath, AbortReachesEveryRank) {
  const Outcome outcome = run_job("abort", 3, 10);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string line = said(outcome, rank, 3);
    EXPECT_NE(line.find("the loss is NaN"), std::string::npos) << outcome.output;
  }
  EXPECT_NE(outcome.code, 0);
}

TEST(MpiDeath, SurvivorsOfAStopNameTheStopped) {
  // mpirun kills the stopped one when the first survivor has ended.
  const Outcome outcome = run_job("stop", 3, 10);
  expect_survivors_name(outcome, 3, "PeerLost");
  EXPECT_NE(outcome.code, 0);
}

}  // namespace
}  // namespace pushpull::testing
