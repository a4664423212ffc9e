// Gloo's own collectives, unchanged, over our transport.
#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/broadcast.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/gather.h>
#include <gloo/reduce.h>
#include <gloo/scatter.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <thread>
#include <typeinfo>
#include <vector>

#include "tests/gloo/gloo_ranks.h"

namespace pushpull::testing {
namespace {

using Context = std::shared_ptr<GlooContext>;

class GlooCollectives : public ::testing::TestWithParam<int> {
 protected:
  int n() const { return GetParam(); }
  void run(const std::function<void(Context)>& body) { run_gloo(n(), body); }
};

// Small integers, so that any order of summation gives the same.
std::vector<float> values(size_t count, int rank) {
  std::vector<float> v(count);
  for (size_t i = 0; i < count; ++i)
    v[i] = static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 101);
  return v;
}

std::vector<float> sums(size_t count, int n) {
  std::vector<float> total(count, 0.0f);
  for (int rank = 0; rank < n; ++rank) {
    const auto v = values(count, rank);
    for (size_t i = 0; i < count; ++i) total[i] += v[i];
  }
  return total;
}

void add_floats(void* out, const void* a, const void* b, size_t count) {
  for (size_t i = 0; i < count; ++i)
    static_cast<float*>(out)[i] = static_cast<const float*>(a)[i] + static_cast<const float*>(b)[i];
}

constexpr size_t kCounts[] = {1, 1000, 500003};

TEST_P(GlooCollectives, Allreduce) {
  using Algorithm = gloo::AllreduceOptions::Algorithm;
  run([](Context context) {
    uint32_t tag = 0;
    for (const auto algorithm : {Algorithm::RING, Algorithm::BCUBE})
      for (const size_t count : kCounts) {
        auto data = values(count, context->rank);
        gloo::AllreduceOptions options(context);
        options.setAlgorithm(algorithm);
        options.setOutput(data.data(), count);
        options.setReduceFunction(&add_floats);
        options.setTag(++tag);
        gloo::allreduce(options);
        EXPECT_EQ(data, sums(count, context->size));
      }
  });
}

template <class Algorithm>
void run_bound(const Context& context, bool twice = true) {
  SCOPED_TRACE(typeid(Algorithm).name());
  for (const size_t count : kCounts) {
    auto data = values(count, context->rank);
    Algorithm algorithm(context, std::vector<float*>{data.data()}, static_cast<int>(count));
    algorithm.run();
    EXPECT_EQ(data, sums(count, context->size));
    if (!twice) continue;
    // The same buffers again: their slots are used a second time.
    const auto again = values(count, context->rank);
    std::copy(again.begin(), again.end(), data.begin());
    algorithm.run();
    EXPECT_EQ(data, sums(count, context->size));
  }
}

TEST_P(GlooCollectives, AllreduceOverBoundBuffers) {
  run([](Context context) {
    run_bound<gloo::AllreduceRing<float>>(context);
    run_bound<gloo::AllreduceRingChunked<float>>(context);
    run_bound<gloo::AllreduceHalvingDoubling<float>>(context);
    // Gloo's own limits, whatever carries it: wrong sums where the ranks are not a power of two, and
    // no notice from the peers of its later steps before it writes into their buffers again.
    if (std::has_single_bit(static_cast<unsigned>(context->size)))
      run_bound<gloo::AllreduceBcube<float>>(context, false);
  });
}

TEST_P(GlooCollectives, Broadcast) {
  run([](Context context) {
    uint32_t tag = 0;
    for (int root = 0; root < context->size; ++root)
      for (const size_t count : kCounts) {
        auto data = values(count, context->rank);
        gloo::BroadcastOptions options(context);
        options.setOutput(data.data(), count);
        options.setRoot(root);
        options.setTag(++tag);
        gloo::broadcast(options);
        EXPECT_EQ(data, values(count, root));
      }
    auto data = values(5000, context->rank);
    gloo::BroadcastOneToAll<float> bound(context, {data.data()}, 5000, context->size - 1);
    bound.run();
    EXPECT_EQ(data, values(5000, context->size - 1));
  });
}

TEST_P(GlooCollectives, Allgather) {
  run([](Context context) {
    const size_t count = 30000;
    std::vector<float> expected;
    for (int r = 0; r < context->size; ++r) {
      const auto v = values(count, r);
      expected.insert(expected.end(), v.begin(), v.end());
    }
    auto own = values(count, context->rank);
    std::vector<float> all(expected.size());
    gloo::AllgatherOptions options(context);
    options.setInput(own.data(), count);
    options.setOutput(all.data(), all.size());
    gloo::allgather(options);
    EXPECT_EQ(all, expected);

    if (context->size == 1) return;  // Gloo's ring wants neighbours
    std::fill(all.begin(), all.end(), 0.0f);
    gloo::AllgatherRing<float> bound(context, {own.data()}, all.data(), static_cast<int>(count));
    bound.run();
    EXPECT_EQ(all, expected);
  });
}

TEST_P(GlooCollectives, AllgatherOfUnequalLengths) {
  run([](Context context) {
    std::vector<size_t> counts;
    std::vector<float> expected;
    for (int r = 0; r < context->size; ++r) {
      counts.push_back(static_cast<size_t>(r) * 1000 + 1);
      const auto v = values(counts.back(), r);
      expected.insert(expected.end(), v.begin(), v.end());
    }
    auto own = values(counts[static_cast<size_t>(context->rank)], context->rank);
    std::vector<float> all(expected.size());
    gloo::AllgathervOptions options(context);
    options.setInput(own.data(), own.size());
    options.setOutput(all.data(), counts);
    gloo::allgatherv(options);
    EXPECT_EQ(all, expected);
  });
}

TEST_P(GlooCollectives, Alltoall) {
  run([](Context context) {
    const auto n = static_cast<size_t>(context->size);
    const size_t count = 20000;
    std::vector<float> in, expected;
    for (size_t r = 0; r < n; ++r) {
      const auto to = values(count, context->rank * 10 + static_cast<int>(r));
      in.insert(in.end(), to.begin(), to.end());
      const auto from = values(count, static_cast<int>(r) * 10 + context->rank);
      expected.insert(expected.end(), from.begin(), from.end());
    }
    std::vector<float> out(in.size());
    gloo::AlltoallOptions options(context);
    options.setInput(in.data(), in.size());
    options.setOutput(out.data(), out.size());
    gloo::alltoall(options);
    EXPECT_EQ(out, expected);

    std::fill(out.begin(), out.end(), 0.0f);
    const std::vector<int64_t> lengths(n, static_cast<int64_t>(count));
    gloo::AlltoallvOptions unequal(context);
    unequal.setInput(in.data(), lengths);
    unequal.setOutput(out.data(), lengths);
    unequal.setTag(1);
    gloo::alltoallv(unequal);
    EXPECT_EQ(out, expected);
  });
}

TEST_P(GlooCollectives, GatherAndScatter) {
  run([](Context context) {
    const auto n = static_cast<size_t>(context->size);
    const size_t count = 40000;
    const int root = context->size - 1;
    auto own = values(count, context->rank);
    std::vector<float> all(n * count);
    gloo::GatherOptions gather(context);
    gather.setInput(own.data(), count);
    if (context->rank == root) gather.setOutput(all.data(), all.size());
    gather.setRoot(root);
    gloo::gather(gather);

    std::vector<float*> blocks;
    for (size_t r = 0; r < n; ++r) blocks.push_back(all.data() + r * count);
    std::vector<float> back(count);
    gloo::ScatterOptions scatter(context);
    if (context->rank == root) scatter.setInputs(blocks, count);
    scatter.setOutput(back.data(), count);
    scatter.setRoot(root);
    gloo::scatter(scatter);
    EXPECT_EQ(back, own);
  });
}

TEST_P(GlooCollectives, Reduce) {
  run([](Context context) {
    uint32_t tag = 0;
    for (int root = 0; root < context->size; ++root)
      for (const size_t count : kCounts) {
        auto in = values(count, context->rank);
        std::vector<float> out(count);
        gloo::ReduceOptions options(context);
        options.setInput(in.data(), count);
        options.setOutput(out.data(), count);
        options.setRoot(root);
        options.setReduceFunction(&add_floats);
        options.setTag(++tag);
        gloo::reduce(options);
        if (context->rank != root) continue;
        EXPECT_EQ(out, sums(count, context->size));
      }
  });
}

TEST_P(GlooCollectives, Barrier) {
  std::atomic<int> entered{0};
  run([&](Context context) {
    const int n = context->size;
    if (context->rank == n - 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++entered;
    gloo::BarrierOptions options(context);
    gloo::barrier(options);
    EXPECT_EQ(entered, n);
    gloo::BarrierAllToAll all(context);
    all.run();
    gloo::BarrierAllToOne one(context);
    one.run();
  });
}

// Collectives with different tags at the same time, on several threads of each rank, started in a
// different order: whoever waits moves everybody's bytes, and messages come before their receives.
TEST_P(GlooCollectives, SeveralThreadsShareAContext) {
  run([](Context context) {
    constexpr int kThreads = 4;
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&context, t] {
        const int own = (t + context->rank) % kThreads;
        for (uint32_t round = 0; round < 20; ++round) {
          const size_t count = own == 0 ? 200000 : 300;
          auto data = values(count, context->rank);
          gloo::AllreduceOptions options(context);
          options.setOutput(data.data(), count);
          options.setReduceFunction(&add_floats);
          options.setTag(static_cast<uint32_t>(own) * 100 + round);
          gloo::allreduce(options);
          EXPECT_EQ(data, sums(count, context->size));
        }
      });
  });
}

INSTANTIATE_TEST_SUITE_P(N, GlooCollectives, ::testing::Values(1, 2, 3, 4, 8),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace pushpull::testing
