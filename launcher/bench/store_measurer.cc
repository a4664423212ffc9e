// pushpull bench at the level of core's KVStore.
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "core/create_store.h"
#include "core/deadline.h"
#include "core/environment.h"
#include "core/group.h"
#include "core/kvstore.h"
#include "core/registry.h"
#include "launcher/bench/measurer.h"
#include "launcher/bench/pattern.h"

namespace pushpull::launcher {
namespace {

constexpr size_t kPage = 4096;
constexpr auto kSampleAtLeast = std::chrono::microseconds(50);
constexpr auto kCopyingAtMost = std::chrono::milliseconds(100);
constexpr size_t kMostCopies = 10;
constexpr auto kProgressEvery = std::chrono::milliseconds(100);

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Zeroed, so that its pages are there.
class Buffer {
 public:
  explicit Buffer(size_t bytes)
      : memory_(
            std::aligned_alloc(kPage, (std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage)),
        bytes_(bytes) {
    if (memory_) clear();
  }
  explicit operator bool() const { return memory_ != nullptr; }
  std::span<std::byte> span() const { return {static_cast<std::byte*>(memory_.get()), bytes_}; }
  void clear() const { std::memset(memory_.get(), 0, bytes_); }

 private:
  std::unique_ptr<void, Free> memory_;
  size_t bytes_;
};

double cpu_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

int count_hosts(const std::vector<Member>& members) {
  const std::vector<int> hosts = candidate_hosts(members);
  return static_cast<int>(std::set<int>(hosts.begin(), hosts.end()).size());
}

// One case on this rank: its tensors lie side by side in one buffer.
class CaseRun {
 public:
  CaseRun(KVStore& store, const BenchOptions& options, const BenchCase& bench_case, size_t number)
      : store_(store),
        options_(options),
        pattern_(options.dtype, store.num_workers()),
        data_(bench_case.elements() * size_of(options.dtype)) {
    std::byte* next = data_.span().data();
    for (size_t i = 0; i < bench_case.counts.size() && data_; ++i) {
      const size_t count = bench_case.counts[i];
      keys_.push_back(fmt::format("bench.{}.{}", number, i));
      tensors_.push_back({next, options.dtype, {static_cast<int64_t>(count)}});
      next += count * size_of(options.dtype);
    }
    results_key_ = fmt::format("bench.{}.results", number);
  }

  Result<Measurement> run(const BenchProgress& progress) {
    if (!data_) return fail(out_of_memory());
    const auto right_before = check();
    if (!right_before) return fail(right_before.error());
    data_.clear();  // zeros stay zeros, however often they are summed
    if (auto ok = time_copies(); !ok) return fail(ok.error());
    if (auto ok = time_iterations(progress); !ok) return fail(ok.error());
    if (auto ok = time_copies(); !ok) return fail(ok.error());
    const auto right_after = check();
    if (!right_after) return fail(right_after.error());
    auto measurement = exchange_results(*right_before && *right_after);
    if (measurement && !copies_.empty()) {
      std::nth_element(copies_.begin(), copies_.begin() + middle(), copies_.end());
      measurement->memcpy_seconds = copies_[static_cast<size_t>(middle())];
    }
    return measurement;
  }

 private:
  std::ptrdiff_t middle() const { return static_cast<std::ptrdiff_t>(copies_.size() / 2); }

  Error out_of_memory() const {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("no memory for {} bytes of tensors", data_.span().size()));
  }

  std::span<std::byte> bytes_of(const Tensor& tensor) const {
    return {static_cast<std::byte*>(tensor.data), tensor.count() * size_of(tensor.dtype)};
  }

  // One exchange of known values. false: a value was wrong, and was told.
  Result<bool> check() {
    const bool sums = options_.operation == BenchOperation::kPushPull;
    for (const Tensor& tensor : tensors_) pattern_.fill(bytes_of(tensor), store_.rank());
    if (auto ok = step(); !ok) return fail(ok.error());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const auto bytes = bytes_of(tensors_[i]);
      const auto wrong = sums ? pattern_.check_sum(bytes) : pattern_.check_value(bytes, 0);
      if (!wrong) continue;
      fmt::print(stderr, "pushpull bench: rank {}: tensor {} of {}: {}\n", store_.rank(), i,
                 tensors_.size(), *wrong);
      return false;
    }
    return true;
  }

  // The first call has the last layer's gradient, which is needed last.
  Result<void> step() {
    works_.clear();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const int priority = static_cast<int>(i);
      const std::span<const Tensor> tensor(&tensors_[i], 1);
      if (options_.operation == BenchOperation::kPushPull) {
        works_.push_back(store_.pushpull(keys_[i], tensor, tensor, {.priority = priority}));
      } else {
        works_.push_back(
            store_.broadcast(keys_[i], tensors_[i], tensor, 0, {.priority = priority}));
      }
    }
    // All of them, even after a failure: they use the buffer.
    Result<void> outcome;
    for (Work& work : works_) {
      if (auto ok = work.wait(); !ok && outcome) outcome = ok;
    }
    return outcome;
  }

  Result<void> time_iterations(const BenchProgress& progress) {
    double cpu = 0;
    auto told = Clock::now();
    for (size_t i = 0; i < options_.warmup + options_.iterations; ++i) {
      if (i == options_.warmup) cpu = cpu_seconds();
      if (!options_.synchronous || i == 0) {
        if (auto ok = store_.barrier().wait(); !ok) return ok;
      }
      const auto start = Clock::now();
      if (auto ok = step(); !ok) return ok;
      const auto end = Clock::now();
      if (i >= options_.warmup) {
        seconds_.push_back(std::chrono::duration<double>(end - start).count());
      }
      if (store_.rank() == 0 && end - told > kProgressEvery) {
        progress(seconds_.size());
        told = Clock::now();
      }
    }
    cpu_per_iteration_ = (cpu_seconds() - cpu) / static_cast<double>(options_.iterations);
    return {};
  }

  // memcpy of the tensors' bytes, on rank 0 while the others wait. Between two buffers: of what is
  // larger than a cache, nothing is left in it from the copy before.
  Result<void> time_copies() {
    if (store_.rank() == 0) {
      const Buffer target(data_.span().size());
      if (!target) return fail(out_of_memory());
      const auto end = Clock::now() + kCopyingAtMost;
      size_t repeat = 1;
      for (size_t samples = 0; samples < kMostCopies && Clock::now() < end;) {
        const auto start = Clock::now();
        for (size_t i = 0; i < repeat; ++i) copy(target);
        const double took = seconds_since(start);
        if (took < std::chrono::duration<double>(kSampleAtLeast).count()) {
          repeat *= 2;
          continue;
        }
        copies_.push_back(took / static_cast<double>(repeat));
        ++samples;
      }
    }
    return store_.barrier().wait();
  }

  void copy(const Buffer& target) const {
    std::memcpy(target.span().data(), data_.span().data(), data_.span().size());
    asm volatile("" : : "r"(target.span().data()) : "memory");  // the copy counts as used
  }

  // By a sum in which each rank fills in its own places: nanoseconds of each iteration, CPU time,
  // whether it found a wrong value. Where sums are wrong the rest may be, so each rank looks for
  // itself, too.
  Result<Measurement> exchange_results(bool right) {
    const auto ranks = static_cast<size_t>(store_.num_workers());
    const auto rank = static_cast<size_t>(store_.rank());
    const size_t columns = options_.iterations + 2;
    std::vector<int64_t> table(ranks * columns);
    int64_t* row = table.data() + rank * columns;
    for (const double time : seconds_) *row++ = static_cast<int64_t>(time * 1e9);
    *row++ = static_cast<int64_t>(cpu_per_iteration_ * 1e9);
    *row = right ? 0 : 1;
    const Tensor tensor{table.data(), DType::kInt64, {static_cast<int64_t>(table.size())}};
    if (auto ok = store_.pushpull(results_key_, {&tensor, 1}, {&tensor, 1}).wait(); !ok) {
      return fail(ok.error());
    }
    Measurement found;
    found.seconds.assign(options_.iterations, std::vector<double>(ranks));
    for (size_t r = 0; r < ranks; ++r) {
      const int64_t* its = table.data() + r * columns;
      for (auto& iteration : found.seconds) iteration[r] = static_cast<double>(*its++) * 1e-9;
      found.cpu_seconds.push_back(static_cast<double>(*its++) * 1e-9);
      if (*its != 0 || (r == rank && !right)) found.wrong_ranks.push_back(static_cast<int>(r));
    }
    return found;
  }

  KVStore& store_;
  const BenchOptions& options_;
  Pattern pattern_;
  Buffer data_;
  std::vector<std::string> keys_;
  std::string results_key_;
  std::vector<Tensor> tensors_;
  std::vector<Work> works_;
  std::vector<double> seconds_;
  std::vector<double> copies_;
  double cpu_per_iteration_ = 0;
};

class StoreMeasurer : public Measurer {
 public:
  StoreMeasurer(const BenchOptions& options, std::unique_ptr<Registry> registry,
                std::unique_ptr<KVStore> store)
      : options_(options), registry_(std::move(registry)), store_(std::move(store)) {
    group_ = {store_->rank(), store_->num_workers(), count_hosts(store_->members())};
  }

  const BenchGroup& group() const override { return group_; }

  Result<Measurement> measure(const BenchCase& bench_case, const BenchProgress& progress) override {
    return CaseRun(*store_, options_, bench_case, number_++).run(progress);
  }

  Result<void> finish() override { return store_->close(); }

 private:
  const BenchOptions& options_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<KVStore> store_;
  BenchGroup group_;
  size_t number_ = 0;
};

}  // namespace

Result<std::unique_ptr<Measurer>> make_store_measurer(const BenchOptions& options,
                                                      const Config& config) {
  auto settings = config.settings();
  if (!settings) return fail(settings.error());
  auto registry = std::make_unique<Registry>(settings->module_path);
  auto store = create_store(std::move(*settings), *registry, environment_variable);
  if (!store) return fail(store.error());
  return std::make_unique<StoreMeasurer>(options, std::move(registry), std::move(*store));
}

}  // namespace pushpull::launcher
