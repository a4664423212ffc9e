// What the Redis store leaves in the server, and how often it asks.
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "tests/stores/redis_test.h"

namespace pushpull::testing {
namespace {

class RedisKeysTest : public RedisTest {
 protected:
  void SetUp() override {
    server_ = start();
    ASSERT_NE(server_, nullptr);
  }
  int64_t time_to_live(const std::string& key) { return std::stoll(server_->cli({"PTTL", key})); }
  std::unique_ptr<RedisServer> server_;
};

TEST_F(RedisKeysTest, KeysStandAsTheyWereGiven) {
  auto store = open(*server_);
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->set("pushpull:job 1:run", "a", soon()));
  EXPECT_EQ(server_->cli({"KEYS", "*"}), "pushpull:job 1:run");
  EXPECT_EQ(server_->cli({"GET", "pushpull:job 1:run"}), "a");
}

TEST_F(RedisKeysTest, EveryKeyExpires) {
  auto settings = options(*server_);
  settings.time_to_live = 90s;
  auto store = open(settings);
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->set("pushpull:set", "a", soon()));
  ASSERT_TRUE(store->set_if_absent("pushpull:set_if_absent", "a", soon()));
  ASSERT_TRUE(store->add("pushpull:add", 1, soon()));
  for (const std::string key : {"pushpull:set", "pushpull:set_if_absent", "pushpull:add"}) {
    EXPECT_GT(time_to_live(key), 0) << key;
    EXPECT_LE(time_to_live(key), 90'000) << key;
  }
  EXPECT_EQ(server_->cli({"DBSIZE"}), "3");
}

TEST_F(RedisKeysTest, AnAddThatWasNeverAnsweredLeavesNothingForGood) {
  auto store = open(*server_);
  ASSERT_NE(store, nullptr);
  // The deadline has passed before the reply can come: the command may or may not be carried out.
  for (int i = 0; i < 20; ++i) (void)store->add("pushpull:add", 1, deadline_in(50us));
  std::istringstream keys(server_->cli({"KEYS", "*"}));
  for (std::string key; std::getline(keys, key);) {
    if (key.empty()) continue;
    const auto left = time_to_live(key);
    EXPECT_NE(left, -1) << key << " never expires";  // -2: it has, meanwhile
    EXPECT_LE(left, key == "pushpull:add" ? 3'600'000 : 11'000) << key;
  }
}

TEST_F(RedisKeysTest, TimeToLiveIsMeantInEarnest) {
  auto settings = options(*server_);
  settings.time_to_live = 100ms;
  auto store = open(settings);
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->set("pushpull:set", "a", soon()));
  ASSERT_TRUE(store->add("pushpull:add", 1, soon()));
  const Deadline deadline = soon();
  while (server_->cli({"KEYS", "*"}) != "") {
    ASSERT_LT(Clock::now(), deadline);
    std::this_thread::sleep_for(20ms);
  }
}

TEST_F(RedisKeysTest, FiftyShortJobsLeaveNothing) {
  auto other = open(*server_);
  ASSERT_NE(other, nullptr);
  ASSERT_TRUE(other->set("pushpull:other:run", "lives on", soon()));
  const std::string before = server_->cli({"DBSIZE"});
  for (int job = 0; job < 50; ++job) {
    const std::string run = fmt::format("pushpull:job {}:run", job);
    const std::string ranks = fmt::format("pushpull:job {}:ranks", job);
    auto rank0 = open(*server_);
    auto rank1 = open(*server_);
    ASSERT_TRUE(rank0 && rank1);
    ASSERT_TRUE(rank0->set(run, "advert", soon()));
    ASSERT_TRUE(rank1->wait(run, "", soon()));
    ASSERT_TRUE(rank0->add(ranks, 1, soon()));
    const auto sum = rank1->add(ranks, 1, soon());
    ASSERT_TRUE(sum) << sum.error().message();
    EXPECT_EQ(*sum, 2);
    ASSERT_TRUE(rank0->remove_if(run, "advert", soon()));
    ASSERT_TRUE(rank0->remove_if(ranks, "2", soon()));
  }
  EXPECT_EQ(server_->cli({"DBSIZE"}), before);
}

TEST_F(RedisKeysTest, RoundTripsPerRankDoNotGrowWithTheNumberOfRanks) {
  for (const int ranks : {2, 16}) {
    server_->cli({"CONFIG", "RESETSTAT"});
    auto first = open(*server_);
    ASSERT_NE(first, nullptr);
    ASSERT_TRUE(first->set("pushpull:job:run", "advert", soon()));
    std::vector<std::jthread> others;
    for (int rank = 1; rank < ranks; ++rank) {
      others.emplace_back([&] {
        auto store = open(*server_);
        ASSERT_NE(store, nullptr);
        EXPECT_TRUE(store->wait("pushpull:job:run", "", soon()));
      });
    }
    others.clear();
    EXPECT_EQ(server_->calls("set"), 1);
    EXPECT_EQ(server_->calls("get"), ranks - 1);
    for (const std::string command : {"auth", "select", "ping", "eval", "hello"}) {
      EXPECT_EQ(server_->calls(command), 0) << command;
    }
  }
}

TEST_F(RedisKeysTest, WaitingAsksAtMostAFewTimesASecond) {
  auto store = open(*server_);
  ASSERT_NE(store, nullptr);
  ASSERT_FALSE(store->wait("pushpull:absent", "", deadline_in(2s)));
  // At first quickly (5, 10, 20 … ms), later four to eight times a second.
  EXPECT_GE(server_->calls("get"), 5);
  EXPECT_LE(server_->calls("get"), 30);
}

}  // namespace
}  // namespace pushpull::testing
