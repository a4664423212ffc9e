// One rank of a group, found by the environment:
//
//   hosts_rank [rounds=1]
//
// Sums tensors of several sizes, broadcasts from every root, checks every element, and prints
// "<local rank> of <local size>" where all was right. With 0 rounds it says "ready" and sums until
// the group fails, then prints the culprit's rank and the error.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/create_store.h"
#include "core/environment.h"

namespace {

using namespace pushpull;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

std::unique_ptr<KVStore> create(Registry& registry) {
  auto config = Config::load({}, environment_variable);
  if (!config) die(config.error().message());
  auto settings = config->settings();
  if (!settings) die(settings.error().message());
  auto store = create_store(*settings, registry, environment_variable);
  if (!store) die(store.error().message());
  return std::move(*store);
}

// Element i of what `rank` gives: whole numbers, so that sums are exact in any order.
float given(int rank, size_t i) { return static_cast<float>((i % 61 + 1) * (rank + 1)); }

void sum(KVStore& kv, size_t count) {
  std::vector<float> v(count);
  for (size_t i = 0; i < count; ++i) v[i] = given(kv.rank(), i);
  const Tensor t{v.data(), DType::kFloat32, {static_cast<int64_t>(count)}};
  if (auto ok = kv.pushpull("sum" + std::to_string(count), {&t, 1}, {&t, 1}).wait(); !ok)
    die(ok.error().message());
  const int n = kv.num_workers();
  for (size_t i = 0; i < count; ++i)
    if (v[i] != given(n * (n + 1) / 2 - 1, i)) die("a sum is wrong at " + std::to_string(i));
}

void broadcast(KVStore& kv, size_t count, int root) {
  std::vector<float> v(count);
  for (size_t i = 0; i < count; ++i) v[i] = given(kv.rank(), i);
  const Tensor t{v.data(), DType::kFloat32, {static_cast<int64_t>(count)}};
  if (auto ok = kv.broadcast("root" + std::to_string(root), t, {&t, 1}, root).wait(); !ok)
    die(ok.error().message());
  for (size_t i = 0; i < count; ++i)
    if (v[i] != given(root, i)) die("a broadcast is wrong at " + std::to_string(i));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 1;
  Registry registry;
  auto kv = create(registry);
  if (rounds == 0) {
    std::printf("ready\n");
    std::fflush(stdout);
    for (;;) {
      std::vector<float> v(1 << 20, 1.0f);
      const Tensor t{v.data(), DType::kFloat32, {1 << 20}};
      if (auto ok = kv->pushpull("endless", {&t, 1}, {&t, 1}).wait(); !ok) {
        std::printf("%d: %s\n", ok.error().rank(), ok.error().message().c_str());
        return 75;
      }
    }
  }
  for (int round = 0; round < rounds; ++round)
    for (const size_t count : {size_t{1}, size_t{1000}, size_t{100001}, size_t{4} << 20})
      sum(*kv, count);
  for (int root = 0; root < kv->num_workers(); ++root) broadcast(*kv, 300001, root);
  if (auto ok = kv->close(); !ok) die(ok.error().message());
  std::printf("%d of %d\n", kv->local_rank(), kv->local_size());
}
