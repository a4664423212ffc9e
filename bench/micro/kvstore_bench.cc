// What a training step costs at the level of KVStore: every rank a process, all of them on this host.
//
//   micro_kvstore_bench set MODEL RANKS [ITERATIONS] [DTYPE] [FUSION_KIB] [CHUNK_KIB]
//   micro_kvstore_bench call BYTES RANKS [ITERATIONS]
//   micro_kvstore_bench idle BYTES RANKS [SECONDS]
//
// `set`: all tensors of the model at once, last layer most urgent, then a wait for each; next to
// memcpy of the set by one thread, in turns. `call`: one tensor, one call at a time. A time is the
// slowest rank's. `idle`: some calls, and then what ranks use that have nothing to do.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <pthread.h>

#include "bench/micro/cpu_seconds.h"
#include "core/kvstore.h"
#include "core/net/hello.h"

namespace pushpull {
namespace {

constexpr int kMaxRanks = 64;
constexpr int kMaxIterations = 100'000;

// Between the processes.
struct Shared {
  pthread_barrier_t barrier;
  double memcpy_us[kMaxIterations];
  double us[kMaxRanks][kMaxIterations];
  double cpu_s[kMaxRanks];
  bool wrong;
};

struct Plan {
  std::vector<size_t> counts;
  DType dtype = DType::kFloat32;
  int ranks = 2;
  int iterations = 20;
  bool whole_set = true;
  bool idle = false;  // iterations are seconds
  Settings settings;
};

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

// Bytes of 1.0 and of the sum of ones, as the dtype writes them.
std::vector<unsigned char> bytes_of(DType dtype, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  uint32_t out = bits;
  if (dtype == DType::kBfloat16) out = bits >> 16;
  if (dtype == DType::kFloat16) out = value == 0 ? 0 : ((bits >> 13) - ((127 - 15) << 10)) & 0x7fff;
  std::vector<unsigned char> bytes(size_of(dtype));
  std::memcpy(bytes.data(), &out, bytes.size());
  return bytes;
}

class Rank {
 public:
  Rank(const Plan& plan, int rank, Shared& shared) : plan_(plan), rank_(rank), shared_(shared) {
    for (size_t count : plan.counts) {
      offsets_.push_back(bytes_);
      bytes_ += (count * size_of(plan.dtype) + 63) / 64 * 64;
    }
    memory_.reset(make(bytes_));
    copy_.reset(make(bytes_));
  }

  int run() {
    Settings settings = plan_.settings;
    settings.rank = rank_;
    Registry registry;
    auto store = KVStore::create(settings, registry);
    if (!store) {
      std::fprintf(stderr, "%s\n", store.error().message().c_str());
      return 1;
    }
    if (plan_.idle) {
      for (int i = -100; i < 0; ++i) iteration(**store, i);
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    const double before = cpu_seconds();
    const int warm_up = std::min(plan_.iterations, plan_.whole_set ? 3 : 100);
    if (plan_.idle) std::this_thread::sleep_for(std::chrono::seconds(plan_.iterations));
    for (int i = -warm_up; i < plan_.iterations && !plan_.idle; ++i) iteration(**store, i);
    shared_.cpu_s[rank_] = cpu_seconds() - before;
    return (*store)->close() ? 0 : 1;
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  static char* make(size_t bytes) {
    auto* const p = static_cast<char*>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    std::memset(p, 0, bytes);
    return p;
  }

  void fill() {
    const auto one = bytes_of(plan_.dtype, 1.0F);
    for (size_t at = 0; at + one.size() <= bytes_; at += one.size())
      std::memcpy(memory_.get() + at, one.data(), one.size());
  }
  void check() {
    const auto sum = bytes_of(plan_.dtype, static_cast<float>(plan_.ranks));
    for (size_t k = 0; k < plan_.counts.size(); ++k)
      for (size_t i = 0; i < plan_.counts[k]; i += 1009)
        if (std::memcmp(memory_.get() + offsets_[k] + i * sum.size(), sum.data(), sum.size()) != 0)
          shared_.wrong = true;
  }

  void iteration(KVStore& store, int i) {
    const bool look = plan_.whole_set || i < 0;
    if (look) fill();
    if (plan_.whole_set) {
      ::pthread_barrier_wait(&shared_.barrier);
      if (rank_ == 0) {
        const auto start = Clock::now();
        for (size_t k = 0; k < plan_.counts.size(); ++k)
          std::memcpy(copy_.get() + offsets_[k], memory_.get() + offsets_[k],
                      plan_.counts[k] * size_of(plan_.dtype));
        if (i >= 0) shared_.memcpy_us[i] = since(start);
      }
      ::pthread_barrier_wait(&shared_.barrier);
    }
    const auto start = Clock::now();
    step(store);
    if (i >= 0) shared_.us[rank_][i] = since(start);
    if (look) check();
  }

  void step(KVStore& store) {
    std::vector<Work> works;
    works.reserve(plan_.counts.size());
    for (size_t k = plan_.counts.size(); k-- > 0;) {
      const Tensor tensor{memory_.get() + offsets_[k], plan_.dtype,
                          {static_cast<int64_t>(plan_.counts[k])}};
      PushPullOptions options;
      options.priority = -static_cast<int>(k);
      works.push_back(store.pushpull(std::to_string(k), {&tensor, 1}, {&tensor, 1}, options));
    }
    for (Work& work : works)
      if (!work.wait()) shared_.wrong = true;
  }

  const Plan& plan_;
  const int rank_;
  Shared& shared_;
  std::vector<size_t> offsets_;
  size_t bytes_ = 0;
  std::unique_ptr<char, Free> memory_, copy_;
};

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

void report(const Plan& plan, const Shared& shared) {
  const auto n = static_cast<size_t>(plan.iterations);
  std::vector<double> slowest(n), copies(shared.memcpy_us, shared.memcpy_us + n);
  double cpu = 0;
  for (int r = 0; r < plan.ranks; ++r) {
    cpu += shared.cpu_s[r];
    for (size_t i = 0; i < n; ++i) slowest[i] = std::max(slowest[i], shared.us[r][i]);
  }
  if (plan.idle) {
    std::printf("%d idle ranks: %.3f %% of a core per rank%s\n", plan.ranks,
                100 * cpu / plan.ranks / plan.iterations, shared.wrong ? ", WRONG" : "");
    return;
  }
  std::printf("%d ranks, %s%s: min %.1f us, median %.1f us, p95 %.1f us, CPU %.3f s\n", plan.ranks,
              std::string(to_string(plan.dtype)).c_str(), shared.wrong ? ", WRONG" : "",
              quantile(slowest, 0), quantile(slowest, 0.5), quantile(slowest, 0.95), cpu);
  if (!plan.whole_set) return;
  std::printf("  memcpy min %.1f us, median %.1f us; ratio %.2f (min), %.2f (median)\n",
              quantile(copies, 0), quantile(copies, 0.5), quantile(slowest, 0) / quantile(copies, 0),
              quantile(slowest, 0.5) / quantile(copies, 0.5));
}

std::vector<size_t> read_model(const char* path) {
  std::vector<size_t> counts;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line.front() != '#') counts.push_back(std::strtoull(line.c_str(), nullptr, 10));
  return counts;
}

DType dtype_named(std::string_view name) {
  if (name == "float16") return DType::kFloat16;
  if (name == "bfloat16") return DType::kBfloat16;
  return DType::kFloat32;
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) {
  using namespace pushpull;
  const auto number = [&](int i, long otherwise) { return argc > i ? std::atol(argv[i]) : otherwise; };
  Plan plan;
  if (argc > 3) {
    plan.whole_set = std::string_view(argv[1]) == "set";
    plan.idle = std::string_view(argv[1]) == "idle";
  }
  if (argc > 2)
    plan.counts = plan.whole_set ? read_model(argv[2])
                                 : std::vector<size_t>{static_cast<size_t>(number(2, 4)) / 4};
  plan.ranks = static_cast<int>(number(3, 2));
  plan.iterations = static_cast<int>(number(4, plan.whole_set ? 20 : plan.idle ? 10 : 2000));
  if (argc > 5) plan.dtype = dtype_named(argv[5]);
  if (argc < 4 || plan.counts.empty() || plan.ranks > kMaxRanks || plan.iterations > kMaxIterations) {
    std::fprintf(stderr, "usage: %s set MODEL RANKS [ITERATIONS] [DTYPE] [FUSION_KIB] [CHUNK_KIB]\n"
                         "       %s call BYTES RANKS [ITERATIONS]\n"
                         "       %s idle BYTES RANKS [SECONDS]\n", argv[0], argv[0], argv[0]);
    return 2;
  }
  if (const char* backend = std::getenv("BENCH_BACKEND")) plan.settings.backend = backend;
  if (argc > 6) plan.settings.fusion_bytes = static_cast<size_t>(number(6, 0)) << 10;
  if (argc > 7) plan.settings.shm_chunk_bytes = static_cast<size_t>(number(7, 0)) << 10;
  plan.settings.size = plan.ranks;
  plan.settings.job = "bench-" + random_id();
  const std::string folder = "/tmp/" + plan.settings.job;
  plan.settings.rendezvous = "file://" + folder;
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto* const shared = new (memory) Shared;
  pthread_barrierattr_t attributes;
  ::pthread_barrierattr_init(&attributes);
  ::pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_barrier_init(&shared->barrier, &attributes, static_cast<unsigned>(plan.ranks));
  for (int r = 0; r < plan.ranks; ++r)
    if (::fork() == 0) std::_Exit(Rank(plan, r, *shared).run());
  int failed = 0;
  for (int r = 0; r < plan.ranks; ++r) {
    int status = 0;
    ::wait(&status);
    if (status != 0) failed = 1;
  }
  std::filesystem::remove_all(folder);
  if (failed == 0) report(plan, *shared);
  return failed != 0 || shared->wrong ? 1 : 0;
}
