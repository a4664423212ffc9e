#include <algorithm>
#include <atomic>
#include <optional>
#include <random>
#include <thread>

#include "tests/conformance/conformance.h"

namespace pushpull::testing {
namespace {

using namespace std::chrono_literals;

constexpr auto kSoon = 5s;  // against hanging, not a measure of speed

// Aborts from another thread after a while.
class AbortLater {
 public:
  AbortLater(Collective& c, std::chrono::microseconds after, Error reason)
      : thread_([this, &c, after, reason = std::move(reason)] {
          std::this_thread::sleep_for(after);
          c.abort(reason);
          happened_ = true;
        }) {}

  bool happened() const { return happened_; }

 private:
  std::atomic<bool> happened_ = false;
  std::jthread thread_;  // started last: it uses what stands above
};

TEST_P(Conformance, AbortWakesWhoeverWaits) {
  if (ranks() < 2) return;  // nobody waits in a group of one
  run([&](auto& c) {
    ASSERT_TRUE(c->barrier());
    std::vector<float> data(1000, 1.0f);
    const Part part{data.data(), data.data(), DType::kFloat32,
                    1000,        0,           slice_length(1000, c->size())};
    const auto start = std::chrono::steady_clock::now();
    const AbortLater abort(*c, 50ms, Error(ErrorCode::kAborted, "the test says so").at_rank(9));
    // Rank 0 does not come before its own abort, however late that is.
    while (c->rank() == 0 && !abort.happened()) std::this_thread::sleep_for(1ms);
    const auto ok = c->rank() == 0 ? c->barrier() : c->allreduce({&part, 1}, {}, {});
    EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon);
    ASSERT_FALSE(ok);
    EXPECT_EQ(ok.error().code(), ErrorCode::kAborted);
    EXPECT_EQ(ok.error().message(), "the test says so");
    EXPECT_EQ(ok.error().rank(), 9);
    // The first reason stays, for every call.
    c->abort(Error(ErrorCode::kAborted, "another reason"));
    const auto later = c->broadcast({&part, 1}, 0, {});
    ASSERT_FALSE(later);
    EXPECT_EQ(later.error().message(), "the test says so");
    EXPECT_FALSE(c->barrier());
  });
}

// Calls until one fails; then nothing may touch the memory any more.
void call_until_aborted(Collective& c, size_t count) {
  std::vector<float> in(count, 1.0f), out(count, 0.0f);
  const Part part{in.data(), out.data(), DType::kFloat32, count, 0, slice_length(count, c.size())};
  const Part copied{out.data(), out.data(), DType::kFloat32, count, 0, count};
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0;; ++i) {
    ASSERT_LT(std::chrono::steady_clock::now() - start, kSoon);
    const auto ok =
        i % 3 == 2 ? c.broadcast({&copied, 1}, i % c.size(), {}) : c.allreduce({&part, 1}, {}, {});
    if (!ok) break;
  }
  std::fill(in.begin(), in.end(), -1.0f);
  std::fill(out.begin(), out.end(), -2.0f);
  std::this_thread::sleep_for(5ms);
  EXPECT_EQ(std::count(in.begin(), in.end(), -1.0f), static_cast<ptrdiff_t>(count));
  EXPECT_EQ(std::count(out.begin(), out.end(), -2.0f), static_cast<ptrdiff_t>(count));
}

TEST_P(Conformance, AbortAtAnyMomentEndsTheCallAndLeavesTheMemoryAlone) {
  std::mt19937 random(21);
  for (int trial = 0; trial < 10; ++trial) {
    const size_t count = trial % 2 == 0 ? 2000000 : 20000;
    const auto after = std::chrono::microseconds(random() % 8000);
    const int first = static_cast<int>(random() % static_cast<unsigned>(ranks()));
    run([&](auto& c) {
      // One rank first, the others a little later, as it happens when a group is ended.
      const auto delay = c->rank() == first ? 0us : 3000us;
      const AbortLater abort(*c, after + delay, Error(ErrorCode::kAborted, "over"));
      call_until_aborted(*c, count);
    });
  }
}

TEST_P(Conformance, AClosedPeerIsLostAndNamed) {
  if (ranks() < 2) return;  // a group of one has no peers
  for (int gone = 0; gone < ranks(); ++gone) {
    std::atomic<int> survivors{0}, noticed{0};  // in this process
    run([&](auto& c) {
      if (c->rank() != gone) ++survivors;
      ASSERT_TRUE(c->barrier());
      if (c->rank() == gone) {
        std::this_thread::sleep_for(20ms);
        c.reset();
        return;
      }
      const size_t count = 1000000;
      std::vector<float> data(count, 1.0f);
      const Part part{data.data(), data.data(), DType::kFloat32,
                      count,       0,           slice_length(count, c->size())};
      const auto start = std::chrono::steady_clock::now();
      std::optional<AbortLater> coordinator;
      if (!groups().notices_closed_peers())
        coordinator.emplace(*c, 50ms, Error(ErrorCode::kPeerLost, "it has gone").at_rank(gone));
      const auto ok = c->allreduce({&part, 1}, {}, {});
      EXPECT_LT(std::chrono::steady_clock::now() - start, kSoon);
      ASSERT_FALSE(ok);
      EXPECT_EQ(ok.error().code(), ErrorCode::kPeerLost) << ok.error().message();
      EXPECT_EQ(ok.error().rank(), gone) << ok.error().message();
      EXPECT_FALSE(c->barrier());
      // Nobody closes before all have noticed: who closes next is not the culprit.
      ++noticed;
      while (noticed < survivors) std::this_thread::sleep_for(1ms);
    });
  }
}

TEST_P(Conformance, WrongArgumentsAreRefusedAndHarmless) {
  run([&](auto& c) {
    std::vector<float> data(100, 1.0f);
    const Part good{data.data(), data.data(), DType::kFloat32,
                    100,         0,           slice_length(100, c->size())};
    Part null = good, beyond = good, overlapping = good, unaligned = good, integers = good;
    null.in = nullptr;
    beyond.end += 1;
    overlapping.out = data.data() + 1;
    unaligned.in = unaligned.out = reinterpret_cast<char*>(data.data()) + 1;
    integers.dtype = DType::kInt32;
    for (const Part& part : {null, beyond, overlapping, unaligned}) {
      const auto ok = c->allreduce({&part, 1}, {}, {});
      ASSERT_FALSE(ok);
      EXPECT_EQ(ok.error().code(), ErrorCode::kInvalidArgument);
    }
    EXPECT_FALSE(c->allreduce({&integers, 1}, {2.0, 1.0}, {}));
    EXPECT_FALSE(c->broadcast({&good, 1}, c->size(), {}));
    EXPECT_FALSE(c->allgather(nullptr, nullptr, std::vector<size_t>(9, 1)));
    ASSERT_TRUE(c->allreduce({&good, 1}, {}, {}));
    EXPECT_EQ(data, std::vector<float>(100, static_cast<float>(c->size())));
  });
}

}  // namespace
}  // namespace pushpull::testing
