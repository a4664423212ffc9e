// What every backend must do through KVStore, at every group size.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/kvstore.h"
#include "tests/support/kv_group.h"

namespace pushpull {
namespace {

using testing::group_sizes;
using testing::run_ranks;
using testing::under_mpi;

// A new backend gets the suite by one line here.
std::vector<std::string> backends() {
  if (under_mpi()) return {"mpi"};
  return {"gloo", "gloo-redis"};
}

Tensor tensor(std::vector<float>& v) {
  return {v.data(), DType::kFloat32, {static_cast<int64_t>(v.size())}};
}

Result<void> pushpull_in_place(KVStore& kv, std::string_view key, std::vector<float>& v) {
  const Tensor t = tensor(v);
  return kv.pushpull(key, {&t, 1}, {&t, 1}).wait();
}

float sum_of_ranks(int n) { return static_cast<float>(n * (n + 1) / 2); }

class KVStoreSuite : public ::testing::TestWithParam<std::tuple<std::string, int, std::string>> {
 protected:
  std::string backend() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }

  Settings group_settings() const {
    Settings settings = testing::group_settings(backend(), size());
    settings.local = std::get<2>(GetParam());
    if (settings.local == "hosts") {
      settings.local = "shm";
      settings.host_label = "host";
    }
    return settings;
  }
  bool together(int a, int b) const {
    return std::get<2>(GetParam()) != "hosts" || testing::host_of(a) == testing::host_of(b);
  }
  void run_group(const std::function<void(KVStore&)>& body) const {
    testing::run_group(group_settings(), body);
  }
};

TEST_P(KVStoreSuite, KnowsItself) {
  run_group([&](KVStore& kv) {
    EXPECT_EQ(kv.num_workers(), size());
    EXPECT_EQ(kv.type(), type_name(backend()));
    EXPECT_EQ(kv.members().size(), static_cast<size_t>(size()));
    int here = 0, before = 0;
    for (int r = 0; r < size(); ++r) {
      if (!together(r, kv.rank())) continue;
      ++here;
      if (r < kv.rank()) ++before;
    }
    EXPECT_EQ(kv.local_size(), here);
    EXPECT_EQ(kv.local_rank(), before);
  });
}

TEST_P(KVStoreSuite, SumsInPlaceAndOutOfPlaceAndOverLists) {
  run_group([&](KVStore& kv) {
    const float mine = static_cast<float>(kv.rank() + 1);
    for (size_t count : {0u, 1u, 2u, 3u, 1023u, 100'000u}) {
      std::vector<float> a(count, mine), b(count, 0), c(count, 0);
      ASSERT_TRUE(pushpull_in_place(kv, "in-place", a));
      EXPECT_TRUE(std::all_of(a.begin(), a.end(), [&](float x) { return x == sum_of_ranks(size()); }));

      std::fill(a.begin(), a.end(), mine);
      const Tensor in = tensor(a), out[] = {tensor(b), tensor(c)};
      ASSERT_TRUE(kv.pushpull("out", {&in, 1}, out).wait());
      EXPECT_TRUE(std::all_of(a.begin(), a.end(), [&](float x) { return x == mine; }));
      EXPECT_TRUE(std::all_of(b.begin(), b.end(), [&](float x) { return x == sum_of_ranks(size()); }));
      EXPECT_EQ(b, c);

      // Two copies per rank, one of them twice: the device lists of MXNet.
      std::fill(b.begin(), b.end(), mine);
      const Tensor ins[] = {tensor(a), tensor(b), tensor(a)};
      ASSERT_TRUE(kv.pushpull("list", ins, {ins, 2}).wait());
      EXPECT_TRUE(std::all_of(a.begin(), a.end(), [&](float x) { return x == 3 * sum_of_ranks(size()); }));
      EXPECT_EQ(a, b);
    }
  });
}

TEST_P(KVStoreSuite, BroadcastsFromEveryRoot) {
  run_group([&](KVStore& kv) {
    for (int root = 0; root < kv.num_workers(); ++root) {
      std::vector<float> v(1000, static_cast<float>(kv.rank())), w(1000, -1);
      const Tensor value = tensor(v), outs[] = {value, tensor(w)};
      ASSERT_TRUE(kv.broadcast("w", value, outs, root).wait());
      EXPECT_TRUE(std::all_of(v.begin(), v.end(), [&](float x) { return x == static_cast<float>(root); }));
      EXPECT_EQ(v, w);
    }
  });
}

TEST_P(KVStoreSuite, KeysComeInAnyOrder) {
  constexpr int kKeys = 500;
  run_group([&](KVStore& kv) {
    std::vector<int> order(kKeys);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(kv.rank()) + 17));
    std::vector<std::vector<float>> values;
    for (int k = 0; k < kKeys; ++k)
      values.emplace_back(static_cast<size_t>(k % 50), static_cast<float>((kv.rank() + 1) * (k % 13)));
    std::vector<Work> works;
    for (int k : order) {
      const Tensor t = tensor(values[static_cast<size_t>(k)]);
      works.push_back(kv.pushpull(fmt::format("key{}", k), {&t, 1}, {&t, 1}, {.priority = -k}));
    }
    for (Work& w : works) ASSERT_TRUE(w.wait());
    for (int k = 0; k < kKeys; ++k)
      for (float x : values[static_cast<size_t>(k)])
        ASSERT_EQ(x, sum_of_ranks(size()) * static_cast<float>(k % 13));
  });
}

TEST_P(KVStoreSuite, OneKeyTwiceBeforeTheFirstIsDone) {
  run_group([&](KVStore& kv) {
    std::vector<float> a(5000, 1), b(5000, 10), w(5000, static_cast<float>(kv.rank()));
    const Tensor ta = tensor(a), tb = tensor(b), tw = tensor(w);
    auto first = kv.pushpull("k", {&ta, 1}, {&ta, 1});
    auto second = kv.pushpull("k", {&tb, 1}, {&tb, 1});
    auto other = kv.broadcast("k", tw, {&tw, 1}, kv.num_workers() - 1);
    ASSERT_TRUE(second.wait());
    ASSERT_TRUE(first.wait());
    ASSERT_TRUE(other.wait());
    EXPECT_EQ(a[4999], static_cast<float>(size()));
    EXPECT_EQ(b[4999], static_cast<float>(10 * size()));
    EXPECT_EQ(w[4999], static_cast<float>(size() - 1));
  });
}

TEST_P(KVStoreSuite, ReservedCallsMayComeInAnotherOrder) {
  run_group([&](KVStore& kv) {
    std::vector<float> a(10, 1), b(10, 100);
    const Tensor ta = tensor(a), tb = tensor(b);
    const uint64_t first = kv.reserve(CallKind::kPushPull, "k");
    const uint64_t second = kv.reserve(CallKind::kPushPull, "k");
    std::vector<Work> works;
    const auto make = [&](const Tensor& t, uint64_t call) {
      works.push_back(kv.pushpull("k", {&t, 1}, {&t, 1}, {.call = call}));
    };
    if (kv.rank() % 2 == 0) {
      make(ta, first);
      make(tb, second);
    } else {
      make(tb, second);
      make(ta, first);
    }
    for (Work& w : works) ASSERT_TRUE(w.wait());
    EXPECT_EQ(a[0], static_cast<float>(size()));
    EXPECT_EQ(b[0], static_cast<float>(100 * size()));
  });
}

TEST_P(KVStoreSuite, LateRanksAreWaitedFor) {
  run_group([&](KVStore& kv) {
    std::vector<float> v(3000, 1);
    if (kv.rank() == kv.num_workers() - 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    ASSERT_TRUE(pushpull_in_place(kv, "k", v));
    EXPECT_EQ(v[2999], static_cast<float>(size()));
    ASSERT_TRUE(kv.barrier().wait());
  });
}

TEST_P(KVStoreSuite, BarrierEndsAfterAllEarlierCalls) {
  run_group([&](KVStore& kv) {
    for (int round = 0; round < 3; ++round) {
      std::vector<float> v(20'000, 1);
      const Tensor t = tensor(v);
      if (kv.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      auto work = kv.pushpull("k", {&t, 1}, {&t, 1});
      ASSERT_TRUE(kv.barrier().wait());
      EXPECT_TRUE(work.done());
    }
  });
}

// Rank r makes r + 1 rounds, of keys that the others may never have seen.
TEST_P(KVStoreSuite, RanksThatHaveJoinedTakePartWithZeros) {
  run_group([&](KVStore& kv) {
    for (int round = 0; round <= kv.rank(); ++round) {
      const auto present = static_cast<float>(size() - round);
      std::vector<float> known(1000, 1), fresh(static_cast<size_t>(round) * 100, 2), scaled(3, 1);
      ASSERT_TRUE(pushpull_in_place(kv, "known", known));
      ASSERT_TRUE(pushpull_in_place(kv, fmt::format("round{}", round), fresh));
      const Tensor t = tensor(scaled);
      ASSERT_TRUE(kv.pushpull("scaled", {&t, 1}, {&t, 1}, {.prescale = 2.0, .postscale = 0.5}).wait());
      ASSERT_TRUE(kv.barrier().wait());
      EXPECT_EQ(known[999], present);
      EXPECT_EQ(scaled[2], present);
      if (!fresh.empty()) {
        EXPECT_EQ(fresh.back(), 2 * present);
      }
    }
    int last = -1;
    ASSERT_TRUE(kv.join(&last).wait());
    EXPECT_EQ(last, size() - 1);
    std::vector<float> v(10, 1);
    ASSERT_TRUE(pushpull_in_place(kv, "known", v));
    EXPECT_EQ(v[9], static_cast<float>(size()));
    ASSERT_TRUE(kv.join(nullptr).wait());
  });
}

// A call that a rank makes too late fails, and nobody's numbers are confused by it.
TEST_P(KVStoreSuite, CallsAfterAJoinFail) {
  if (size() == 1) return;
  const Settings one = group_settings(), two = group_settings();
  testing::run_group(one, [&](KVStore& kv) {
    Settings mine = two;
    mine.rank = kv.rank();
    mine.job = fmt::format("{}-inner", two.job.substr(0, under_mpi() ? 4 : std::string::npos));
    Registry registry;
    auto inner = KVStore::create(mine, registry);
    ASSERT_TRUE(inner) << inner.error().message();
    std::vector<float> v(10, 1);
    if (kv.rank() == 1) {
      auto joined = kv.join(nullptr);
      const auto late = pushpull_in_place(kv, "late", v);
      ASSERT_FALSE(late);
      EXPECT_NE(late.error().message().find("it was made after join() and before all ranks had joined"),
                std::string::npos)
          << late.error().message();
      ASSERT_TRUE((*inner)->barrier().wait());
      ASSERT_TRUE(joined.wait());
    } else {
      ASSERT_TRUE((*inner)->barrier().wait());
      // Fails as withdrawn, or went on with zeros before the word of that came.
      if (pushpull_in_place(kv, "late", v)) {
        EXPECT_EQ(v[9], static_cast<float>(size() - 1));
      }
      ASSERT_TRUE(kv.join(nullptr).wait());
    }
    std::vector<float> w(10, 1);
    ASSERT_TRUE(pushpull_in_place(kv, "late", w));
    EXPECT_EQ(w[9], static_cast<float>(size()));
    EXPECT_TRUE((*inner)->close());
  });
}

TEST_P(KVStoreSuite, MismatchFailsThatCallEverywhereAndTheGroupLivesOn) {
  if (size() == 1) return;  // one rank agrees with itself
  run_group([&](KVStore& kv) {
    const bool odd = kv.rank() == kv.num_workers() - 1;
    std::vector<float> v(8, 1);
    const Tensor shape{v.data(), DType::kFloat32, odd ? std::vector<int64_t>{4, 2} : std::vector<int64_t>{8}};
    const auto differs = kv.pushpull("w", {&shape, 1}, {&shape, 1}).wait();
    ASSERT_FALSE(differs);
    EXPECT_EQ(differs.error().code(), ErrorCode::kMismatch);
    EXPECT_NE(differs.error().message().find("(4, 2)"), std::string::npos) << differs.error().message();
    EXPECT_NE(differs.error().message().find("(8)"), std::string::npos) << differs.error().message();
    EXPECT_NE(differs.error().message().find("'w'"), std::string::npos) << differs.error().message();

    const Tensor dtype{v.data(), odd ? DType::kInt32 : DType::kFloat32, {8}};
    EXPECT_FALSE(kv.pushpull("w", {&dtype, 1}, {&dtype, 1}).wait());
    const Tensor good = tensor(v);
    const auto root = kv.broadcast("w", good, {&good, 1}, odd ? 1 : 0).wait();
    ASSERT_FALSE(root);
    EXPECT_EQ(root.error().code(), ErrorCode::kMismatch);
    const auto scaled = kv.pushpull("w", {&good, 1}, {&good, 1}, {.prescale = odd ? 0.5 : 1.0}).wait();
    EXPECT_FALSE(scaled);

    ASSERT_TRUE(pushpull_in_place(kv, "w", v));
    EXPECT_EQ(v[7], static_cast<float>(size()));
  });
}

TEST_P(KVStoreSuite, WithdrawnCallFailsEverywhereAndTheGroupLivesOn) {
  if (size() == 1) return;
  run_group([&](KVStore& kv) {
    std::vector<float> v(8, 1);
    if (kv.rank() == 1) {
      kv.withdraw(CallKind::kPushPull, "w", kv.reserve(CallKind::kPushPull, "w"), "its input had failed");
    } else {
      const auto result = pushpull_in_place(kv, "w", v);
      ASSERT_FALSE(result);
      EXPECT_NE(result.error().message().find("its input had failed"), std::string::npos)
          << result.error().message();
      EXPECT_NE(result.error().message().find("rank 1"), std::string::npos) << result.error().message();
    }
    std::fill(v.begin(), v.end(), 1.f);
    ASSERT_TRUE(pushpull_in_place(kv, "w", v));
    EXPECT_EQ(v[7], static_cast<float>(size()));
  });
}

TEST_P(KVStoreSuite, ARefusedCallFailsEverywhereAndTheGroupLivesOn) {
  if (size() == 1) return;
  run_group([&](KVStore& kv) {
    std::vector<float> v(8, 1);
    const Tensor good = tensor(v), nowhere{nullptr, DType::kFloat32, {8}};
    const int last = kv.num_workers() - 1;
    const bool wrong = kv.rank() == last;
    const auto expect_refused = [&](const Result<void>& result, const char* why) {
      ASSERT_FALSE(result);
      EXPECT_NE(result.error().message().find(why), std::string::npos) << result.error().message();
      if (wrong) {
        EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
      } else {
        EXPECT_EQ(result.error().rank(), last);
        EXPECT_NE(result.error().message().find(fmt::format("rank {}", last)), std::string::npos);
      }
    };
    const Tensor& mine = wrong ? nowhere : good;
    expect_refused(kv.pushpull("w", {&mine, 1}, {&mine, 1}).wait(), "without memory");
    const uint64_t call = kv.reserve(CallKind::kPushPull, "w");
    expect_refused(kv.pushpull("w", {&mine, 1}, {&mine, 1}, {.call = call}).wait(), "without memory");
    expect_refused(kv.broadcast("w", good, {&good, 1}, wrong ? size() : 0).wait(), "does not exist");

    const std::string endless((1u << 20) + 1, 'k');
    const auto refused = kv.pushpull(endless, {&good, 1}, {&good, 1}).wait();
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_LT(refused.error().message().size(), 200u);
    ASSERT_TRUE(kv.barrier().wait());  // nothing stays open behind it
    const std::string long_key(1u << 20, 'k');
    ASSERT_TRUE(kv.pushpull(long_key, {&good, 1}, {&good, 1}).wait());
    ASSERT_TRUE(pushpull_in_place(kv, "w", v));
    EXPECT_EQ(v[7], static_cast<float>(size() * size()));
  });
}

TEST_P(KVStoreSuite, TwoStoresAtOnce) {
  const Settings one = group_settings(), two = group_settings();
  testing::run_group(one, [&](KVStore& outer) {
    Settings mine = two;
    mine.rank = outer.rank();
    mine.job = fmt::format("{}-inner", two.job.substr(0, under_mpi() ? 4 : std::string::npos));
    Registry registry;
    auto inner = KVStore::create(mine, registry);
    ASSERT_TRUE(inner) << inner.error().message();
    std::vector<float> a(100, 1), b(100, 2);
    const Tensor ta = tensor(a), tb = tensor(b);
    auto first = outer.pushpull("k", {&ta, 1}, {&ta, 1});
    auto second = (*inner)->pushpull("k", {&tb, 1}, {&tb, 1});
    ASSERT_TRUE(second.wait());
    ASSERT_TRUE(first.wait());
    EXPECT_EQ(a[0], static_cast<float>(size()));
    EXPECT_EQ(b[0], static_cast<float>(2 * size()));
    EXPECT_TRUE((*inner)->close());
  });
}

TEST_P(KVStoreSuite, ScalesBeforeAndAfter) {
  run_group([&](KVStore& kv) {
    std::vector<float> v(1000, static_cast<float>(kv.rank() + 1));
    const Tensor t = tensor(v);
    const double mean = 1.0 / kv.num_workers();
    ASSERT_TRUE(kv.pushpull("k", {&t, 1}, {&t, 1}, {.prescale = 2.0, .postscale = mean}).wait());
    EXPECT_FLOAT_EQ(v[999], 2 * sum_of_ranks(size()) / static_cast<float>(size()));
  });
}

TEST_P(KVStoreSuite, AbortReachesEveryone) {
  run_group([&](KVStore& kv) {
    std::vector<float> v(10, 1);
    // The last rank may be through and give up before the others have finished this one.
    if (const auto first = pushpull_in_place(kv, "k", v); !first) {
      EXPECT_NE(first.error().message().find("the loss is NaN"), std::string::npos);
    }
    if (kv.rank() == kv.num_workers() - 1) {
      kv.abort(Error(ErrorCode::kAborted, "the loss is NaN"));
    } else {
      const auto result = pushpull_in_place(kv, "never", v);
      ASSERT_FALSE(result);
      EXPECT_NE(result.error().message().find("the loss is NaN"), std::string::npos)
          << result.error().message();
    }
    const auto later = pushpull_in_place(kv, "k", v);
    ASSERT_FALSE(later);
    EXPECT_EQ(later.error().code(), ErrorCode::kAborted);
  });
}

TEST_P(KVStoreSuite, ARankThatLeavesIsNamed) {
  if (size() == 1) return;
  Settings settings = group_settings();
  settings.leave_timeout = std::chrono::seconds(2);
  testing::run_group(settings, [&](KVStore& kv) {
    std::vector<float> v(10, 1);
    ASSERT_TRUE(pushpull_in_place(kv, "k", v));
    if (kv.rank() == 1) return;
    const auto result = pushpull_in_place(kv, "k", v);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::kPeerLost);
    EXPECT_EQ(result.error().rank(), 1);
    EXPECT_NE(result.error().message().find("rank 1"), std::string::npos) << result.error().message();
  });
}

TEST_P(KVStoreSuite, UnsupportedCallsSayWhatToUse) {
  run_group([&](KVStore& kv) {
    for (const char* call : {"init", "push", "pull", "row_sparse_pull", "set_gradient_compression",
                             "set_optimizer", "save_optimizer_states", "load_optimizer_states"}) {
      const auto result = kv.unsupported(call);
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().code(), ErrorCode::kUnsupported);
      const std::string start = fmt::format("{} is not supported in kvstore with type {}; ", call, kv.type());
      EXPECT_EQ(result.error().message().substr(0, start.size()), start);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    , KVStoreSuite,
    ::testing::Combine(::testing::ValuesIn(backends()), ::testing::ValuesIn(group_sizes({1, 2, 3, 4, 8})),
                       ::testing::Values("shm", "backend", "hosts")),
    [](const auto& param_info) {
      std::string name = fmt::format("{}_{}_{}", std::get<0>(param_info.param),
                                     std::get<1>(param_info.param), std::get<2>(param_info.param));
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace pushpull
