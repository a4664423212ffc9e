// A training step seen by the coordinator: every rank announces every key, the calls become ready,
// are cut into batches, and the batches end. Without sockets: the coordinator's own cost, with and
// without decoding.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/control/coordinator.h"
#include "core/control/messages.h"

namespace pushpull {
namespace {

// ResNet-50 has 161 gradients of 102 MB in all.
constexpr int kKeys = 161;
constexpr int64_t kElements = 159'000;

class Sink : public Coordinator::Output {
 public:
  void send(int, const ToRank&) override {}
  void send_all(const ToRank& message) override {
    if (const auto* batch = std::get_if<Batch>(&message)) {
      cut = batch->number;
      entries += batch->entries.size();
    }
    failed = failed || std::holds_alternative<Aborted>(message);
  }
  uint64_t cut = 0;
  uint64_t entries = 0;
  bool failed = false;
};

class Job {
 public:
  explicit Job(int size) : size_(size), coordinator_(options(size), sink_) {
    for (int r = 0; r < size; ++r) {
      const Member member{.rank = r, .host = "h", .pid = r, .boot_id = {}, .address = {}};
      if (!coordinator_.join(member, now_)) sink_.failed = true;
    }
    for (int r = 0; r < size; ++r) coordinator_.receive(r, Connected{}, now_);
    Signature signature;
    signature.shape = {kElements};
    for (int r = 0; r < size; ++r)
      for (uint32_t k = 0; k < kKeys; ++k)
        coordinator_.receive(
            r, Define{.id = k, .key = "key" + std::to_string(k), .signature = signature}, now_);
    for (uint32_t k = 0; k < kKeys; ++k) step_.calls.push_back({k, 0, -static_cast<int>(k)});
  }

  // One step; `frames`: announcements come as bytes and in that many messages per rank.
  void step(int frames, bool decode) {
    ++call_;
    now_ += std::chrono::milliseconds(1);
    for (auto& a : step_.calls) a.call = call_;
    std::vector<FromRank> messages = split(frames);
    std::string bytes;
    if (decode)
      for (const FromRank& m : messages) encode(m, &bytes);
    for (int r = 0; r < size_; ++r) {
      if (decode) {
        receive_bytes(r, bytes);
      } else {
        for (const FromRank& m : messages) coordinator_.receive(r, m, now_);
      }
    }
    // Rank 0 works through the batches; everybody reports at the end.
    for (uint64_t seen = 0; seen != sink_.cut;) coordinator_.batch_started(seen = sink_.cut, now_);
    for (int r = 0; r < size_; ++r) coordinator_.receive(r, Progress{sink_.cut}, now_);
  }

  const Sink& sink() const { return sink_; }

 private:
  static CoordinatorOptions options(int size) {
    CoordinatorOptions o;
    o.size = size;
    return o;
  }

  std::vector<FromRank> split(int frames) const {
    std::vector<FromRank> messages;
    const size_t each =
        (step_.calls.size() + static_cast<size_t>(frames) - 1) / static_cast<size_t>(frames);
    for (size_t i = 0; i < step_.calls.size(); i += each) {
      const auto begin = step_.calls.begin() + static_cast<ptrdiff_t>(i);
      const size_t n = std::min(each, step_.calls.size() - i);
      messages.push_back(Announce{{begin, begin + static_cast<ptrdiff_t>(n)}});
    }
    return messages;
  }

  void receive_bytes(int rank, std::string_view bytes) {
    while (!bytes.empty()) {
      const auto decoded = decode_from_rank(bytes);
      if (!decoded || !*decoded) {
        sink_.failed = true;
        return;
      }
      coordinator_.receive(rank, (*decoded)->message, now_);
      bytes.remove_prefix((*decoded)->bytes);
    }
  }

  int size_;
  Sink sink_;
  Coordinator coordinator_;
  Announce step_;
  uint64_t call_ = 0;
  Clock::time_point now_ = Clock::time_point(std::chrono::hours(1));
};

void run(benchmark::State& state, bool decode) {
  const auto size = static_cast<int>(state.range(0));
  Job job(size);
  for (auto _ : state) job.step(static_cast<int>(state.range(1)), decode);
  const auto steps = static_cast<int64_t>(state.iterations());
  if (job.sink().failed || job.sink().entries < static_cast<uint64_t>(steps) * kKeys)
    state.SkipWithError("a call did not reach its batch");
  state.SetItemsProcessed(steps * size * kKeys);
  state.counters["batches"] =
      benchmark::Counter(static_cast<double>(job.sink().cut) / static_cast<double>(steps));
}

void step(benchmark::State& state) { run(state, false); }
void decoded_step(benchmark::State& state) { run(state, true); }

// Ranks, announcement messages per rank and step.
void sizes(benchmark::internal::Benchmark* b) {
  for (const int ranks : {2, 8, 64, 1024})
    for (const int frames : {1, kKeys}) b->Args({ranks, frames});
  b->ArgNames({"ranks", "frames"})->Unit(benchmark::kMillisecond);
}
BENCHMARK(step)->Apply(sizes);
BENCHMARK(decoded_step)->Apply(sizes);

}  // namespace
}  // namespace pushpull
