// The bits of a sum depend on the tensor, the number of ranks and the form of exchange alone: over many
// runs that differ in delays, order of calls, priorities, fusion, chunks, kernel set and what carries
// the bytes, every rank gets those of the scalar reference (docs/summation.md).
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/kvstore.h"
#include "core/reduce.h"
#include "tests/support/kv_group.h"
#include "tests/support/reference.h"

namespace pushpull {
namespace {

using testing::Bytes;
using testing::under_mpi;

struct Key {
  DType dtype;
  size_t count;
  std::vector<Bytes> inputs;  // by rank
  Bytes sum;
};

// Sizes around slices, vectors, chunks and batches.
std::vector<Key> make_keys(int ranks) {
  const size_t counts[] = {1, 15, 17, 1000, 4096, 16411, 70001, 300007};
  const DType dtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat64,
                          DType::kInt32};
  std::vector<Key> keys;
  for (size_t i = 0; i < std::size(counts); ++i) {
    for (DType dtype : dtypes) {
      if (counts[i] > 100'000 && dtype != DType::kFloat32) continue;
      Key key{dtype, counts[i], {}, {}};
      for (int r = 0; r < ranks; ++r)
        key.inputs.push_back(testing::make_input(dtype, key.count, r, static_cast<uint32_t>(i)));
      key.sum = testing::reference_sum(dtype, key.count, key.inputs);
      keys.push_back(std::move(key));
    }
  }
  return keys;
}

// One way to run, drawn from a seed that all ranks know.
struct Way {
  Settings settings;
  std::string target;

  Way(const std::string& backend, int ranks, unsigned seed) {
    std::mt19937 random(seed);
    const auto one_of = [&](const auto& list) { return list[random() % std::size(list)]; };
    const size_t fusions[] = {0, 1 << 10, 100'000, 1 << 20, 4 << 20};
    const size_t chunks[] = {4 << 10, 9999, 64 << 10, 256 << 10};
    const char* const exchanges[] = {"auto", "direct"};  // one rounding of 16-bit floats
    const char* const locals[] = {"shm", "backend"};
    settings = testing::group_settings(backend, ranks);
    settings.fusion_bytes = one_of(fusions);
    settings.chunk_bytes = one_of(chunks);
    settings.shm_chunk_bytes = one_of(chunks);
    settings.exchange = one_of(exchanges);
    settings.local = ranks > 1 ? one_of(locals) : "auto";
    target = one_of(reduce_targets());
  }

  std::string describe() const {
    return fmt::format("{} ranks, {}: fusion {}, chunks {} and {}, exchange {}, local {}, kernels {}",
                       settings.size, settings.backend, settings.fusion_bytes, settings.chunk_bytes,
                       settings.shm_chunk_bytes, settings.exchange, settings.local, target);
  }
};

void sum_all_keys(KVStore& kv, const std::vector<Key>& keys, unsigned seed) {
  std::mt19937 random(seed * 64 + static_cast<unsigned>(kv.rank()));
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  std::vector<Bytes> outs(keys.size());
  std::vector<std::pair<size_t, Work>> works;
  for (size_t k : order) {
    const Key& key = keys[k];
    outs[k] = key.inputs[static_cast<size_t>(kv.rank())];
    const Tensor tensor{outs[k].data(), key.dtype, {static_cast<int64_t>(key.count)}};
    PushPullOptions options;
    options.priority = static_cast<int>(random() % 5);
    works.emplace_back(k, kv.pushpull(std::to_string(k), {&tensor, 1}, {&tensor, 1}, options));
    if (random() % 8 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
  }
  for (auto& [k, work] : works) {
    const auto done = work.wait();
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_EQ(outs[k], keys[k].sum) << to_string(keys[k].dtype) << " x " << keys[k].count;
  }
}

class SameBits : public ::testing::TestWithParam<std::string> {};

TEST_P(SameBits, WhateverTheWay) {
  const char* const wanted = std::getenv("PUSHPULL_TEST_RUNS");
  const int runs = wanted != nullptr ? std::atoi(wanted) : 50;
  std::vector<std::vector<Key>> keys(5);
  for (int run = 0; run < runs; ++run) {
    const auto seed = static_cast<unsigned>(run);
    const int ranks = testing::group_sizes({1 + run % 4}).front();
    auto& of_size = keys[static_cast<size_t>(std::min(ranks, 4))];
    if (of_size.empty()) of_size = make_keys(ranks);
    const Way way(GetParam(), ranks, seed);
    SCOPED_TRACE(way.describe());
    ASSERT_TRUE(use_reduce_target(way.target.c_str()));
    testing::run_group(way.settings, [&](KVStore& kv) {
      for (unsigned step = 0; step < 2; ++step) sum_all_keys(kv, of_size, seed * 2 + step);
    });
    if (HasFailure()) break;
  }
  use_reduce_target(nullptr);
}

// A new backend gets the test by one line here.
std::vector<std::string> backends() {
  if (under_mpi()) return {"mpi"};
  return {"gloo", "gloo-redis"};
}

INSTANTIATE_TEST_SUITE_P(Backends, SameBits, ::testing::ValuesIn(backends()), [](const auto& backend) {
  std::string name = backend.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace pushpull
