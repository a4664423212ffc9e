// How long ranks of one host take to sum a model over shared memory, against memcpy of the model by
// one thread, in turns: on a busy machine only times from the same seconds can be compared.
//
//   micro_collective_bench MODEL RANKS [ITERATIONS] [CHUNK_KIB]
//
// Ranks are threads with memory of their own. `fused`: all tensors in one call; `tensor`: a call
// each. `all copy`: every rank copies its set at once, the least that any exchange moves through
// memory.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/backend.h"
#include "core/net/hello.h"
#include "core/registry.h"

namespace pushpull {
namespace {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<float, Free>;

Memory make_memory(size_t count) {
  Memory memory(static_cast<float*>(std::aligned_alloc(4096, (count * 4 + 4095) / 4096 * 4096)));
  std::fill_n(memory.get(), count, 1.0f);
  return memory;
}

std::vector<size_t> read_model(const char* path) {
  std::vector<size_t> counts;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) counts.push_back(std::strtoull(line.c_str(), nullptr, 10));
  return counts;
}

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Series {
  const char* name;
  std::vector<double> ms;
  void print(const Series& base) {
    std::sort(ms.begin(), ms.end());
    const auto middle = [](const Series& s) { return s.ms[s.ms.size() / 2]; };
    std::printf("%-8s min %8.3f ms  median %8.3f ms  of memcpy: %.2f (min), %.2f (median)\n", name,
                ms.front(), middle(*this), ms.front() / base.ms.front(),
                middle(*this) / middle(base));
  }
};

struct Bench {
  std::vector<size_t> counts;
  int ranks;
  int iterations;
  Settings settings;
  Backend& backend;
  std::string run = random_id();
  std::barrier<> together{ranks};
  Series copies{"memcpy", {}}, all_copy{"all copy", {}}, fused{"fused", {}}, tensors{"tensor", {}};
  std::atomic<bool> failed = false;

  Group group(int rank) const {
    Group g;
    g.job = "bench";
    g.run = run;
    g.rank = rank;
    g.secret = run;
    g.members.resize(static_cast<size_t>(ranks));
    for (int r = 0; r < ranks; ++r) g.members[static_cast<size_t>(r)].rank = r;
    return g;
  }

  // All ranks at once; the time until the last has it.
  template <class F>
  void time(int rank, Series& series, const F& f) {
    together.arrive_and_wait();
    const auto start = Clock::now();
    f();
    together.arrive_and_wait();
    if (rank == 0) series.ms.push_back(since(start));
  }

  void one_rank(int rank) {
    size_t total = 0;
    for (size_t count : counts) total += count;
    const Memory memory = make_memory(total);
    const Memory copy = make_memory(total);
    std::vector<Part> parts;
    for (size_t count : counts) {
      float* at =
          parts.empty() ? memory.get() : static_cast<float*>(parts.back().out) + parts.back().total;
      parts.push_back({at, at, DType::kFloat32, count, 0, slice_length(count, ranks)});
    }
    auto collective = backend.connect(group(rank), settings, deadline_in(std::chrono::seconds(30)));
    if (!collective) {
      std::fprintf(stderr, "%s\n", collective.error().message().c_str());
      std::exit(1);
    }
    const PartDone ignore = [](size_t) {};
    const Reduce plain;
    const auto reset = [&] { std::fill_n(memory.get(), total, 1.0f); };
    const auto check = [&] {
      for (size_t i = 0; i < total; i += 1009)
        if (memory.get()[i] != static_cast<float>(ranks)) failed = true;
    };
    for (int i = 0; i < iterations; ++i) {
      const auto copy_all = [&] {
        for (const Part& part : parts)
          std::memcpy(copy.get() + (static_cast<const float*>(part.in) - memory.get()), part.in,
                      part.total * sizeof(float));
      };
      time(rank, copies, [&] {
        if (rank == 0) copy_all();
      });
      time(rank, all_copy, copy_all);
      reset();
      time(rank, fused, [&] {
        if (!(*collective)->allreduce(parts, plain, ignore)) failed = true;
      });
      check();
      reset();
      time(rank, tensors, [&] {
        for (const Part& part : parts)
          if (!(*collective)->allreduce({&part, 1}, plain, ignore)) failed = true;
      });
      check();
    }
    together.arrive_and_wait();
  }
};

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  using namespace pushpull;
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL RANKS [ITERATIONS] [CHUNK_KIB]\n", argv[0]);
    return 2;
  }
  Registry registry;
  auto backend = registry.backend("shm");
  if (!backend) {
    std::fprintf(stderr, "%s\n", backend.error().message().c_str());
    return 1;
  }
  Settings settings;
  if (argc > 4) settings.shm_chunk_bytes = std::strtoull(argv[4], nullptr, 10) << 10;
  Bench bench{read_model(argv[1]), std::atoi(argv[2]), argc > 3 ? std::atoi(argv[3]) : 20, settings,
              **backend};
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < bench.ranks; ++r) threads.emplace_back([&, r] { bench.one_rank(r); });
  }
  std::printf("%d ranks, chunks of %zu KiB, %d iterations%s\n", bench.ranks,
              settings.shm_chunk_bytes >> 10, bench.iterations, bench.failed ? ", WRONG SUMS" : "");
  for (Series* series : {&bench.copies, &bench.all_copy, &bench.fused, &bench.tensors})
    series->print(bench.copies);
  return bench.failed ? 1 : 0;
}
