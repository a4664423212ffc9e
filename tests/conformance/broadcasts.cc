#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "tests/conformance/conformance.h"

namespace pushpull::testing {
namespace {

void check_broadcast(Collective& c, DType dtype, size_t count, const std::vector<Bytes>& in,
                     int root, bool in_place) {
  const Bytes& own = in[static_cast<size_t>(c.rank())];
  Placed placed(own, in_place);
  const Part part = placed.broadcast_part(dtype, count);
  DoneOnce done(1);
  const auto ok = c.broadcast({&part, 1}, root, done.callback());
  ASSERT_TRUE(ok) << ok.error().message();
  EXPECT_TRUE(done.all());
  EXPECT_EQ(difference(dtype, placed.result(), in[static_cast<size_t>(root)]), "");
  EXPECT_TRUE(placed.input_untouched(own));
}

TEST_P(Conformance, BroadcastsOfEveryTypeFromEveryRoot) {
  for (DType dtype : kAllDTypes)
    for (size_t count : {0, 1, 2, 3, 1023}) {
      const auto in = inputs(dtype, count, 11);
      run([&](auto& c) {
        for (int root = 0; root < c->size(); ++root)
          for (bool in_place : {true, false}) check_broadcast(*c, dtype, count, in, root, in_place);
      });
    }
}

TEST_P(Conformance, BroadcastsOfManyElements) {
  for (DType dtype : kAllDTypes) {
    const auto in = inputs(dtype, kMany, 12);
    const int root = static_cast<int>(dtype) % ranks();
    run([&](auto& c) { check_broadcast(*c, dtype, kMany, in, root, true); });
  }
}

TEST_P(Conformance, BroadcastsOfHugeTensors) {
  if (ranks() != 2 && ranks() != 4) return;  // the suite's definition asks for these sizes
  for (DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const auto in = inputs(dtype, kHuge, 13);
    run([&](auto& c) { check_broadcast(*c, dtype, kHuge, in, 1, false); });
  }
}

TEST_P(Conformance, BroadcastListsAndPieces) {
  std::mt19937 random(14);
  std::vector<DType> dtypes;
  std::vector<std::vector<Bytes>> in;
  std::vector<size_t> counts;
  for (uint32_t i = 0; i < 30; ++i) {
    dtypes.push_back(kAllDTypes[random() % std::size(kAllDTypes)]);
    counts.push_back(random() % (i % 2 == 0 ? 50 : 60000));
    in.push_back(inputs(dtypes[i], counts[i], 200 + i));
  }
  const int root = ranks() - 1;
  run([&](auto& c) {
    std::vector<Placed> placed;
    std::vector<Part> first, second;
    for (size_t i = 0; i < counts.size(); ++i)
      placed.emplace_back(in[i][static_cast<size_t>(c->rank())], i % 3 != 0);
    for (size_t i = 0; i < counts.size(); ++i) {
      first.push_back(placed[i].broadcast_part(dtypes[i], counts[i]));
      second.push_back(first.back());
      first.back().end = second.back().begin = counts[i] / 3;
    }
    for (const auto& parts : {first, second}) {
      DoneOnce done(parts.size());
      ASSERT_TRUE(c->broadcast(parts, root, done.callback()));
      EXPECT_TRUE(done.all());
    }
    for (size_t i = 0; i < counts.size(); ++i)
      EXPECT_EQ(difference(dtypes[i], placed[i].result(), in[i][static_cast<size_t>(root)]), "");
  });
}

TEST_P(Conformance, BroadcastReadsOnlyTheRootsInput) {
  run([&](auto& c) {
    std::vector<int32_t> in(100, 7), out(100, 0);
    Part part{c->rank() == 0 ? in.data() : nullptr, out.data(), DType::kInt32, 100, 0, 100};
    ASSERT_TRUE(c->broadcast({&part, 1}, 0, {}));
    EXPECT_EQ(out, std::vector<int32_t>(100, 7));
  });
}

TEST_P(Conformance, AllgatherOfUnequalLengths) {
  for (const size_t unit : {size_t{1}, size_t{1000}, size_t{300000}})
    run([&](auto& c) {
      std::vector<size_t> sizes;
      Bytes expected;
      for (int r = 0; r < c->size(); ++r) {
        sizes.push_back(unit * static_cast<size_t>((r * 3) % 5));  // 0 for some
        const Bytes block = make_input(DType::kUint8, sizes.back(), r, 15);
        expected.insert(expected.end(), block.begin(), block.end());
      }
      const auto rank = static_cast<size_t>(c->rank());
      const Bytes own = make_input(DType::kUint8, sizes[rank], c->rank(), 15);
      Bytes out(expected.size());
      const auto ok = c->allgather(own.data(), out.data(), sizes);
      ASSERT_TRUE(ok) << ok.error().message();
      EXPECT_EQ(out, expected);
      // In place: the rank's block is where it belongs already.
      Bytes again(expected.size());
      size_t start = 0;
      for (size_t r = 0; r < rank; ++r) start += sizes[r];
      std::copy(own.begin(), own.end(), again.begin() + static_cast<ptrdiff_t>(start));
      ASSERT_TRUE(c->allgather(again.data() + start, again.data(), sizes));
      EXPECT_EQ(again, expected);
    });
}

TEST_P(Conformance, NobodyLeavesABarrierBeforeAllHaveEntered) {
  run([&](auto& c) {
    for (int late = 0; late < c->size(); ++late) {
      if (c->rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      // One clock for all processes of a host.
      const auto now = [] { return std::chrono::steady_clock::now().time_since_epoch().count(); };
      int64_t times[2];
      times[0] = now();
      ASSERT_TRUE(c->barrier());
      times[1] = now();
      std::vector<int64_t> all(2 * static_cast<size_t>(c->size()));
      const std::vector<size_t> sizes(static_cast<size_t>(c->size()), sizeof times);
      ASSERT_TRUE(c->allgather(times, all.data(), sizes));
      int64_t entered = 0, left = INT64_MAX;
      for (size_t i = 0; i < all.size(); i += 2) {
        entered = std::max(entered, all[i]);
        left = std::min(left, all[i + 1]);
      }
      EXPECT_LE(entered, left);
    }
  });
}

}  // namespace
}  // namespace pushpull::testing
