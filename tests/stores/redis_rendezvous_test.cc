// How runs of a job find each other, and pass each other by, over a real Redis.
#include <thread>

#include "core/rendezvous.h"
#include "tests/stores/redis_test.h"

namespace pushpull::testing {
namespace {

Advert advert_of(const std::string& run, int64_t pid) {
  Advert advert;
  advert.run = run;
  advert.size = 2;
  advert.endpoint = "127.0.0.1:40000";
  advert.secret = "the job's secret";
  advert.host = "node-of-" + run;
  advert.pid = pid;
  return advert;
}

class RedisRendezvousTest : public RedisTest {
 protected:
  void SetUp() override {
    server_ = start({.password = "pw", .config = {}});
    ASSERT_NE(server_, nullptr);
  }
  std::unique_ptr<Rendezvous> meet(const std::string& job = "job") {
    auto store = open(*server_);
    return store ? make_store_rendezvous(std::move(store), job) : nullptr;
  }
  std::unique_ptr<RedisServer> server_;
};

TEST_F(RedisRendezvousTest, OthersFindWhatRankZeroPublished) {
  auto zero = meet();
  auto one = meet();
  ASSERT_TRUE(zero && one);
  Result<Advert> found = fail(ErrorCode::kAborted, "not run");
  std::jthread finding([&] { found = one->find("", soon()); });
  std::this_thread::sleep_for(100ms);
  ASSERT_TRUE(zero->publish(advert_of("first", 1), soon()));
  finding.join();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->run, "first");
  EXPECT_EQ(found->secret, "the job's secret");
  EXPECT_TRUE(zero->trusted());
  EXPECT_EQ(zero->description(), server_->url() + "/0");
}

TEST_F(RedisRendezvousTest, TheNewestRunWinsAndTheOlderIsToldWhoReplacedIt) {
  auto older = meet();
  auto newer = meet();
  auto one = meet();
  ASSERT_TRUE(older && newer && one);
  ASSERT_TRUE(older->publish(advert_of("older", 11), soon()));
  EXPECT_TRUE(older->still_current(soon()));
  ASSERT_TRUE(newer->publish(advert_of("newer", 22), soon()));
  const auto current = older->still_current(soon());
  expect_error(current, ErrorCode::kAborted, {"node-of-newer", "22"});
  EXPECT_TRUE(current.error().restartable());
  EXPECT_TRUE(newer->still_current(soon()));
  const auto found = one->find("", soon());
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->run, "newer");
  // The older one leaves without taking the newer one's advert along.
  older->withdraw();
  EXPECT_TRUE(newer->still_current(soon()));
  EXPECT_EQ(server_->cli({"EXISTS", "pushpull:job:run"}), "1");
}

TEST_F(RedisRendezvousTest, TheAdvertOfADeadRunIsPassedOver) {
  {
    auto dead = meet();
    ASSERT_TRUE(dead);
    ASSERT_TRUE(dead->publish(advert_of("dead", 11), soon()));
  }  // killed: it withdraws nothing
  auto one = meet();
  auto zero = meet();
  ASSERT_TRUE(one && zero);
  const auto stale = one->find("", soon());
  ASSERT_TRUE(stale) << stale.error().message();
  EXPECT_EQ(stale->run, "dead");
  const Error error = error_within(200ms, "node-of-dead", [&](Deadline deadline) {
    return error_of(one->find("dead", deadline));
  });
  expect_error(error, ErrorCode::kTimeout, {"job 'job'", "node-of-dead", "11"});
  std::jthread later([&] {
    std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(zero->publish(advert_of("living", 22), soon()));
  });
  const auto found = one->find("dead", soon());
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->run, "living");
}

TEST_F(RedisRendezvousTest, NothingIsLeftAfterConnecting) {
  auto zero = meet();
  ASSERT_TRUE(zero);
  ASSERT_TRUE(zero->publish(advert_of("run", 1), soon()));
  ASSERT_TRUE(zero->still_current(soon()));
  const int64_t life = std::stoll(server_->cli({"PTTL", "pushpull:job:run"}));
  EXPECT_GT(life, 0);
  EXPECT_LE(life, 3'600'000);
  zero->withdraw();
  EXPECT_EQ(server_->cli({"DBSIZE"}), "0");
}

TEST_F(RedisRendezvousTest, WhatTheServerLostIsPublishedAgain) {
  auto zero = meet();
  auto one = meet();
  ASSERT_TRUE(zero && one);
  ASSERT_TRUE(zero->publish(advert_of("run", 1), soon()));
  EXPECT_EQ(server_->cli({"FLUSHALL"}), "OK");
  EXPECT_TRUE(zero->still_current(soon()));
  ASSERT_TRUE(one->find("", soon()));
  ASSERT_TRUE(server_->start_again());  // comes back empty
  EXPECT_TRUE(zero->still_current(soon()));
  const auto found = one->find("", soon());
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->run, "run");
}

TEST_F(RedisRendezvousTest, JobsWithDifferentNamesDoNotMeet) {
  auto first = meet("first");
  auto second = meet("second");
  auto guest = meet("second");
  ASSERT_TRUE(first && second && guest);
  ASSERT_TRUE(first->publish(advert_of("a", 1), soon()));
  expect_error(guest->find("", deadline_in(200ms)), ErrorCode::kTimeout, {"job 'second'"});
  ASSERT_TRUE(second->publish(advert_of("b", 2), soon()));
  const auto found = guest->find("", soon());
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->run, "b");
  EXPECT_TRUE(first->still_current(soon()));
}

TEST_F(RedisRendezvousTest, AServerThatIsGoneDoesNotHoldUpTheEnd) {
  auto zero = meet();
  ASSERT_TRUE(zero);
  ASSERT_TRUE(zero->publish(advert_of("run", 1), soon()));
  server_->kill();
  const auto before = Clock::now();
  zero->withdraw();
  EXPECT_LT(Clock::now() - before, kAtOnce);
}

TEST_F(RedisRendezvousTest, NoErrorShowsTheSecret) {
  auto zero = meet();
  auto one = meet();
  ASSERT_TRUE(zero && one);
  ASSERT_TRUE(zero->publish(advert_of("run", 1), soon()));
  const auto found = one->find("run", deadline_in(100ms));
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message().find("the job's secret"), std::string::npos);
  server_->kill();
  const auto current = zero->still_current(deadline_in(100ms));
  ASSERT_FALSE(current);
  EXPECT_EQ(current.error().message().find("the job's secret"), std::string::npos);
  EXPECT_EQ(current.error().message().find("pw"), std::string::npos);
}

}  // namespace
}  // namespace pushpull::testing
