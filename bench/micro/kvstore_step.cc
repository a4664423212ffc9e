// One step of a model through KVStore, as one rank of a group that is found by the environment
// (PUSHPULL_RANK, PUSHPULL_SIZE, PUSHPULL_RENDEZVOUS, ...), on one host or many.
//
//   kvstore_step SHAPES [iters=10] [dtype=float32] [stores=1]
//
// SHAPES: a file with one element count per line. A step is one pushpull per tensor, last layer
// first, as backward makes them, and the wait for all. Rank 0 prints the median, best and worst
// step, counted with the slowest rank, and the CPU time of a step over all ranks. Several stores
// take turns with the tensors: as many connections and data threads, as if the group were connected
// several times. With 0 iterations it is idle for five seconds instead and prints what that cost.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "bench/micro/cpu_seconds.h"
#include "core/config.h"
#include "core/create_store.h"
#include "core/environment.h"
#include "core/kvstore.h"

namespace {

using namespace pushpull;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "kvstore_step: %s\n", what.c_str());
  std::exit(1);
}

std::vector<size_t> read_shapes(const char* path) {
  std::ifstream file(path);
  std::vector<size_t> counts;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line[0] != '#') counts.push_back(std::stoull(line));
  if (counts.empty()) die(std::string("no shapes in ") + path);
  return counts;
}

std::unique_ptr<KVStore> create(Registry& registry, int store) {
  auto config = Config::load({}, environment_variable);
  if (!config) die(config.error().message());
  auto settings = config->settings();
  if (!settings) die(settings.error().message());
  if (store > 0) settings->job += '-' + std::to_string(store);
  auto made = create_store(*settings, registry, environment_variable);
  if (!made) die(made.error().message());
  return std::move(*made);
}

// What each rank measured, on every rank.
std::vector<double> everybodys(KVStore& kv, double mine) {
  std::vector<double> all(static_cast<size_t>(kv.num_workers()), 0.0);
  all[static_cast<size_t>(kv.rank())] = mine;
  const Tensor t{all.data(), DType::kFloat64, {kv.num_workers()}};
  if (auto ok = kv.pushpull("everybody's", {&t, 1}, {&t, 1}).wait(); !ok) die(ok.error().message());
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) die("usage: kvstore_step SHAPES [iters=10] [dtype=float32] [stores=1]");
  const auto counts = read_shapes(argv[1]);
  const int iters = argc > 2 ? std::atoi(argv[2]) : 10;
  const DType dtype = parse_dtype(argc > 3 ? argv[3] : "float32").value_or(DType::kFloat32);
  Registry registry;
  const auto start = Clock::now();
  std::vector<std::unique_ptr<KVStore>> stores;
  for (int i = 0; i < (argc > 4 ? std::max(1, std::atoi(argv[4])) : 1); ++i)
    stores.push_back(create(registry, i));
  KVStore* const kv = stores.front().get();
  const std::chrono::duration<double> connecting = Clock::now() - start;
  const double slowest_connect = [&] {
    const auto all = everybodys(*kv, connecting.count());
    return *std::max_element(all.begin(), all.end());
  }();

  if (iters == 0) {
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(5));
    const auto costs = everybodys(*kv, (cpu_seconds() - before) / 5);
    if (kv->rank() == 0)
      std::printf("%d ranks, connected in %.2f s; idle %.2f %% of a core per rank, at most\n",
                  kv->num_workers(), slowest_connect,
                  100 * *std::max_element(costs.begin(), costs.end()));
    return kv->close() ? 0 : 1;
  }
  size_t bytes = 0;
  std::vector<std::vector<std::byte>> memory;
  for (const size_t count : counts) bytes += memory.emplace_back(count * size_of(dtype)).size();
  std::vector<double> times, cpu;
  for (int i = -2; i < iters; ++i) {
    if (auto ok = kv->barrier().wait(); !ok) die(ok.error().message());
    const auto began = Clock::now();
    const double used = cpu_seconds();
    std::vector<Work> works;
    for (size_t k = counts.size(); k-- > 0;) {
      const Tensor t{memory[k].data(), dtype, {static_cast<int64_t>(counts[k])}};
      works.push_back(stores[k % stores.size()]->pushpull(std::to_string(k), {&t, 1}, {&t, 1},
                                                          {.priority = -static_cast<int>(k)}));
    }
    for (Work& work : works)
      if (auto ok = work.wait(); !ok) die(ok.error().message());
    const std::chrono::duration<double> took = Clock::now() - began;
    const double cost = cpu_seconds() - used;
    const auto all = everybodys(*kv, took.count()), costs = everybodys(*kv, cost);
    if (i < 0) continue;
    times.push_back(*std::max_element(all.begin(), all.end()));
    cpu.push_back(0.0);
    for (const double c : costs) cpu.back() += c;
  }
  std::sort(times.begin(), times.end());
  std::sort(cpu.begin(), cpu.end());
  if (kv->rank() == 0)
    std::printf(
        "%d ranks, %zu bytes: median %.1f ms, best %.1f, worst %.1f; CPU %.0f ms a step; "
        "connected in %.2f s\n",
        kv->num_workers(), bytes, times[times.size() / 2] * 1e3, times.front() * 1e3,
        times.back() * 1e3, cpu[cpu.size() / 2] * 1e3, slowest_connect);
  for (auto& store : stores)
    if (auto ok = store->close(); !ok) die(ok.error().message());
}
