// How a group comes about, and why it may not.
#include <atomic>
#include <chrono>
#include <future>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/kvstore.h"
#include "core/net/acceptor.h"
#include "core/net/hello.h"
#include "core/registry.h"
#include "core/rendezvous.h"
#include "tests/support/kv_group.h"

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::group_settings;
using testing::run_ranks;

using Change = std::function<void(int, Settings&)>;

// What create() said on each of `count` processes; empty where it made the group. `change` sees the number
// of the process and its settings, whose rank is that number.
std::vector<std::string> form(const Settings& common, int count, const Change& change = {}) {
  std::vector<std::string> said(static_cast<size_t>(count));
  run_ranks(count, [&](int process) {
    Settings mine = common;
    mine.rank = process;
    if (change) change(process, mine);
    Registry registry;
    auto store = KVStore::create(mine, registry);
    if (store) {
      EXPECT_TRUE((*store)->close());
    } else {
      said[static_cast<size_t>(process)] = store.error().message();
    }
  });
  return said;
}

void expect_said(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(Forming, SettingsThatDifferEndItOnEveryRankWithBothValues) {
  for (const std::string backend : {"gloo", "gloo-redis"}) {
    const auto said = form(group_settings(backend, 3), 3, [](int process, Settings& settings) {
      if (process == 2) settings.local = "backend";
      // Last, so that the others hear of it while they wait.
      if (process == 2) std::this_thread::sleep_for(milliseconds(300));
    });
    expect_said(said[0], {"PUSHPULL_LOCAL is auto on rank 0", "backend on rank 2",
                          "set it to the same value on every rank"});
    EXPECT_EQ(said[0], said[1]);
    EXPECT_EQ(said[0], said[2]);
  }
}

TEST(Forming, GroupsOfTwoSizesEndOnEveryRank) {
  const auto said = form(group_settings("gloo", 2), 2,
                         [](int process, Settings& settings) { settings.size = 2 + process; });
  expect_said(said[0], {"PUSHPULL_SIZE is 2 on rank 0", "but 3 on rank 1"});
  EXPECT_EQ(said[0], said[1]);
}

TEST(Forming, ARankClaimedTwiceIsNamedToAll) {
  Settings settings = group_settings("gloo", 3);
  settings.rendezvous_timeout = seconds(3);
  const auto said = form(settings, 3, [](int process, Settings& mine) {
    if (process == 2) mine.rank = 1;
    if (process == 2) std::this_thread::sleep_for(milliseconds(500));
  });
  expect_said(said[2], {"rank 1 is claimed twice: by pid", "PUSHPULL_RANK"});
  expect_said(said[0], {"2 of 3 ranks have joined; missing 2", said[2]});
  EXPECT_EQ(said[1], said[0]);
}

TEST(Forming, TheMissingAreNamedToAll) {
  Settings settings = group_settings("gloo", 6);
  settings.rendezvous_timeout = seconds(2);
  const auto said = form(settings, 3);
  expect_said(said[0], {"3 of 6 ranks have joined; missing", "3", "5", "after 2 s"});
  EXPECT_EQ(said[1], said[0]);
  EXPECT_EQ(said[2], said[0]);
}

// A dead run's address may belong to somebody else by now, who refuses the hello.
TEST(Forming, AnAdvertOfADeadRunDoesNotStopTheNext) {
  const Settings settings = group_settings("gloo-redis", 2);
  Acceptor::Options options;
  options.secret = "another job's";
  options.judge = [](const Hello&) -> Result<void> { return {}; };
  options.accepted = [](Hello, Socket) {};
  auto somebody = Acceptor::listen(std::move(options));
  ASSERT_TRUE(somebody);

  Registry registry;
  auto factory = registry.store("redis");
  ASSERT_TRUE(factory) << factory.error().message();
  StoreOptions at;
  at.url = settings.rendezvous;
  at.job = settings.job;
  auto store = (*factory)->open(at, deadline_in(seconds(10)));
  ASSERT_TRUE(store) << store.error().message();
  const auto dead = make_store_rendezvous(std::move(*store), settings.job);
  Advert advert;
  advert.run = "dead";
  advert.size = 7;
  advert.endpoint = (*somebody)->endpoint().to_string();
  advert.secret = "the dead run's";
  advert.host = "elsewhere";
  ASSERT_TRUE(dead->publish(advert, deadline_in(seconds(10))));

  const auto said = form(settings, 2, [](int process, Settings&) {
    if (process == 0) std::this_thread::sleep_for(milliseconds(500));
  });
  EXPECT_EQ(said, std::vector<std::string>(2));
}

TEST(Forming, ASecretThatDiffersIsAnErrorThatSaysSo) {
  Settings settings = group_settings("gloo", 2);
  settings.rendezvous_timeout = seconds(4);
  const auto said = form(settings, 2, [](int process, Settings& mine) {
    mine.secret = process == 0 ? "right" : "wrong";
  });
  expect_said(said[1], {"the secret of job", "PUSHPULL_SECRET"});
  expect_said(said[0], {"1 of 2 ranks have joined; missing 1"});
}

// A store whose remove_if() waits until the test lets it go on.
struct Gate {
  std::promise<void> open;
  std::shared_future<void> opened = open.get_future().share();
  std::atomic<bool> gave_up = false;
};

class SlowStore final : public Store {
 public:
  SlowStore(std::unique_ptr<Store> inner, Gate* gate) : inner_(std::move(inner)), gate_(gate) {}
  Result<void> set(std::string_view k, std::string_view v, Deadline d) override { return inner_->set(k, v, d); }
  Result<std::string> set_if_absent(std::string_view k, std::string_view v, Deadline d) override {
    return inner_->set_if_absent(k, v, d);
  }
  Result<std::optional<std::string>> get(std::string_view k, Deadline d) override { return inner_->get(k, d); }
  Result<std::string> wait(std::string_view k, std::string_view v, Deadline d) override {
    return inner_->wait(k, v, d);
  }
  Result<int64_t> add(std::string_view k, int64_t n, Deadline d) override { return inner_->add(k, n, d); }
  Result<void> remove_if(std::string_view k, std::string_view v, Deadline d) override {
    if (gate_->opened.wait_for(seconds(20)) != std::future_status::ready) gate_->gave_up = true;
    return inner_->remove_if(k, v, d);
  }
  bool trusted() const override { return inner_->trusted(); }
  std::string description() const override { return inner_->description(); }

 private:
  std::unique_ptr<Store> inner_;
  Gate* gate_;
};

class SlowStores final : public StoreFactory {
 public:
  SlowStores(StoreFactory* inner, Gate* gate) : inner_(inner), gate_(gate) {}
  std::string_view name() const override { return inner_->name(); }
  Result<std::unique_ptr<Store>> open(const StoreOptions& options, Deadline deadline) override {
    auto store = inner_->open(options, deadline);
    if (!store) return store;
    return std::make_unique<SlowStore>(std::move(*store), gate_);
  }

 private:
  StoreFactory* inner_;
  Gate* gate_;
};

TEST(Forming, AStoreThatIsGoneByThenDoesNotHoldRankZero) {
  const Settings settings = group_settings("gloo-redis", 2);
  Gate gate;
  run_ranks(2, [&](int rank) {
    Settings mine = settings;
    mine.rank = rank;
    Registry real;
    auto factory = real.store("redis");
    ASSERT_TRUE(factory) << factory.error().message();
    Registry registry;
    if (rank == 0) registry.add(std::make_unique<SlowStores>(*factory, &gate));
    auto store = KVStore::create(mine, registry);
    if (rank == 0) gate.open.set_value();
    ASSERT_TRUE(store) << store.error().message();
    EXPECT_TRUE((*store)->close());
  });
  EXPECT_FALSE(gate.gave_up) << "create() waited until the advert was taken away";
}

}  // namespace
}  // namespace pushpull
