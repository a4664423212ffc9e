#include "core/rendezvous.h"

#include <future>

#include <gtest/gtest.h>

#include "core/registry.h"
#include "tests/stores/store_places.h"
#include "tests/unit/net_helpers.h"

namespace pushpull {
namespace {

using namespace pushpull::testing;

Deadline soon() { return deadline_in(seconds(20)); }

Advert advert_of(const std::string& run, int64_t pid = 100) {
  Advert advert;
  advert.run = run;
  advert.size = 4;
  advert.endpoint = "10.0.0.1:4711";
  advert.secret = "a made-up \"secret\"";
  advert.host = "node-a";
  advert.pid = pid;
  return advert;
}

TEST(Advert, IsOneLineOfJson) {
  Advert advert = advert_of("r1");
  advert.published = 1'700'000'000;
  const std::string text = advert.encode();
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto back = Advert::decode(text);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->run, "r1");
  EXPECT_EQ(back->size, 4);
  EXPECT_EQ(back->endpoint, "10.0.0.1:4711");
  EXPECT_EQ(back->secret, advert.secret);
  EXPECT_EQ(back->host, "node-a");
  EXPECT_EQ(back->pid, 100);
  EXPECT_EQ(back->published, 1'700'000'000);
  advert.host = "\xff not UTF-8 \n";
  EXPECT_TRUE(Advert::decode(advert.encode()));
}

TEST(Advert, NewFieldsAreIgnoredAndNonsenseRefused) {
  std::string text = advert_of("r1").encode();
  text.insert(1, R"("later":[1,{"a":null}],)");
  EXPECT_TRUE(Advert::decode(text));
  const std::string good = R"("run":"r","size":2,"endpoint":"h:1","secret":"","host":"h","pid":1)";
  EXPECT_TRUE(Advert::decode("{" + good + "}"));
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[]"), std::string("null"), std::string("{}"),
        "{" + good + ",\"run\":3}", "{" + good + ",\"run\":\"\"}", "{" + good + ",\"size\":0}",
        "{" + good + ",\"size\":1e3}", "{" + good + ",\"size\":99999999999}",
        "{" + good + ",\"size\":18446744073709551615}", "{" + good + ",\"endpoint\":\"h\"}",
        "{" + good + ",\"pid\":-1}", "{" + good + ",\"host\":[]}", "{" + good + "} x",
        "{" + good + ",\"run\":\"" + std::string(100, 'r') + "\"}", std::string(100'000, '['),
        std::string("\xff\xfe", 2)}) {
    const auto advert = Advert::decode(bad);
    ASSERT_FALSE(advert) << bad.substr(0, 200);
    EXPECT_EQ(advert.error().code(), ErrorCode::kInvalidArgument);
  }
}

// Over every store: what the ranks rely on.
class StoreRendezvous : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    auto place = GetParam().make();
    ASSERT_TRUE(place) << place.error().message();
    place_ = std::move(*place);
    place_.options.job = "digits";
    auto factory = registry_.store(GetParam().module);
    ASSERT_TRUE(factory) << factory.error().message();
    factory_ = *factory;
    place_.options.host_it = true;
    leader_store_ = nullptr;
    leader_ = open(&leader_store_);
    place_.options.host_it = false;
  }
  std::unique_ptr<Rendezvous> open(Store** inside = nullptr) {
    auto store = factory_->open(place_.options, soon());
    EXPECT_TRUE(store) << store.error().message();
    if (!store) return nullptr;
    if (inside != nullptr) *inside = store->get();
    return make_store_rendezvous(std::move(*store), "digits");
  }

  Registry registry_;
  StorePlace place_;
  StoreFactory* factory_ = nullptr;
  Store* leader_store_ = nullptr;  // inside leader_
  std::unique_ptr<Rendezvous> leader_;
};

constexpr char kKey[] = "pushpull:digits:run";

TEST_P(StoreRendezvous, OthersFindWhatRankZeroPublishes) {
  auto early = open();
  auto waiting = std::async(std::launch::async, [&] { return early->find("", soon()); });
  std::this_thread::sleep_for(milliseconds(100));
  ASSERT_TRUE(leader_->publish(advert_of("r1"), soon()));
  const auto found = waiting.get();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->run, "r1");
  EXPECT_EQ(found->endpoint, "10.0.0.1:4711");
  EXPECT_GT(found->published, 1'700'000'000);
  EXPECT_EQ(open()->find("", soon())->run, "r1");
  EXPECT_TRUE(leader_->still_current(soon()));
}

TEST_P(StoreRendezvous, AStaleRunIsPassedOver) {
  ASSERT_TRUE(leader_->publish(advert_of("old"), soon()));
  auto late = open();
  auto waiting = std::async(std::launch::async, [&] { return late->find("old", soon()); });
  std::this_thread::sleep_for(milliseconds(100));
  ASSERT_TRUE(leader_->publish(advert_of("new"), soon()));
  const auto found = waiting.get();
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->run, "new");
}

TEST_P(StoreRendezvous, TheNewestRunWins) {
  ASSERT_TRUE(leader_->publish(advert_of("r1"), soon()));
  auto newer = open();
  Advert second = advert_of("r2", 200);
  second.host = "node-b";
  ASSERT_TRUE(newer->publish(second, soon()));
  const auto current = leader_->still_current(soon());
  ASSERT_FALSE(current);
  EXPECT_EQ(current.error().code(), ErrorCode::kAborted);
  EXPECT_TRUE(current.error().restartable());
  EXPECT_EQ(current.error().message(),
            "another run of job 'digits' has replaced this one: its rank 0 is on host node-b (pid "
            "200), this one's on host node-a (pid 100)");
  leader_->withdraw();  // takes nothing away from the newer one
  EXPECT_TRUE(newer->still_current(soon()));
  EXPECT_EQ(open()->find("", soon())->run, "r2");
}

TEST_P(StoreRendezvous, WhatWasLostIsPublishedAgain) {
  ASSERT_TRUE(leader_->publish(advert_of("r1"), soon()));
  const std::string text = leader_store_->get(kKey, soon()).value().value();
  ASSERT_TRUE(leader_store_->remove_if(kKey, text, soon()));
  ASSERT_TRUE(leader_->still_current(soon()));
  EXPECT_EQ(open()->find("", soon())->run, "r1");
  ASSERT_TRUE(leader_store_->set(kKey, "nonsense", soon()));
  ASSERT_TRUE(leader_->still_current(soon()));
  EXPECT_EQ(open()->find("", soon())->run, "r1");
}

TEST_P(StoreRendezvous, WithdrawLeavesNothing) {
  leader_->withdraw();
  ASSERT_TRUE(leader_->publish(advert_of("r1"), soon()));
  leader_->withdraw();
  EXPECT_FALSE(leader_store_->get(kKey, soon()).value());
  EXPECT_FALSE(leader_->still_current(soon()));
  EXPECT_FALSE(leader_store_->get(kKey, soon()).value());
}

TEST_P(StoreRendezvous, ATimeoutSaysThatRankZeroIsMissing) {
  auto other = open();
  const auto nobody = other->find("", deadline_in(milliseconds(300)));
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(nobody.error().rank(), 0);
  EXPECT_TRUE(nobody.error().message().starts_with("rank 0 of job 'digits' did not register at " +
                                                   other->description() + " within 0.3 s"))
      << nobody.error().message();
  ASSERT_TRUE(leader_->publish(advert_of("old"), soon()));
  const auto stale = other->find("old", deadline_in(milliseconds(300)));
  ASSERT_FALSE(stale);
  EXPECT_NE(stale.error().message().find("only the earlier run of host node-a, pid 100"),
            std::string::npos);
  ASSERT_TRUE(leader_store_->set(kKey, "nonsense", soon()));
  const auto nonsense = other->find("", deadline_in(milliseconds(300)));
  ASSERT_FALSE(nonsense);
  EXPECT_NE(nonsense.error().message().find("not from pushpull"), std::string::npos);
}

std::vector<StoreKind> real_stores() {
  std::vector<StoreKind> kinds;
  for (const StoreKind& kind : all_stores()) {
    if (kind.module != "memory") kinds.push_back(kind);
  }
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Every, StoreRendezvous, ::testing::ValuesIn(real_stores()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace pushpull
