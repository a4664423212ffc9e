// Writing and reading control-plane frames: those of a training step of ResNet-50 (161 keys), and
// of its first step, in which keys are defined. Bytes per second count the frames' bytes.
#include <string>

#include <benchmark/benchmark.h>

#include "core/control/messages.h"

namespace pushpull {
namespace {

constexpr uint32_t kKeys = 161;

// All keys of a step in one message.
FromRank announce() {
  Announce step;
  for (uint32_t key = 0; key < kKeys; ++key) {
    step.calls.push_back({.id = key, .call = 1000, .priority = -static_cast<int32_t>(key)});
  }
  return step;
}

FromRank define() {
  Define message;
  message.id = 100;
  message.key = "stage3.unit4.spatial.norm.gamma";
  message.signature.shape = {256, 256, 3, 3};
  return message;
}

FromRank progress() { return Progress{.finished = 123'456}; }
FromRank heartbeat() { return Heartbeat{}; }

// A batch of `entries` keys.
ToRank batch(uint32_t entries) {
  Batch message;
  message.number = 123'456;
  for (uint32_t i = 0; i < entries; ++i) {
    message.entries.push_back({.id = i, .call = 1000, .begin = 0, .end = 79'500});
  }
  return message;
}

template <class Message>
void write_frame(benchmark::State& state, const Message& message) {
  std::string bytes;
  for (auto _ : state) {
    bytes.clear();
    encode(message, &bytes);
    benchmark::DoNotOptimize(bytes.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size()));
}

template <class Message, class Decode>
void read_frame(benchmark::State& state, const Message& message, Decode decode) {
  std::string bytes;
  encode(message, &bytes);
  for (auto _ : state) {
    auto decoded = decode(bytes);
    if (!decoded || !*decoded) return state.SkipWithError("a frame of ours was not understood");
    benchmark::DoNotOptimize(*decoded);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes.size()));
}

void add(const std::string& name, const FromRank& message) {
  benchmark::RegisterBenchmark(("write/" + name).c_str(), write_frame<FromRank>, message);
  benchmark::RegisterBenchmark(("read/" + name).c_str(),
                               read_frame<FromRank, decltype(&decode_from_rank)>, message,
                               &decode_from_rank);
}

void add(const std::string& name, const ToRank& message) {
  benchmark::RegisterBenchmark(("write/" + name).c_str(), write_frame<ToRank>, message);
  benchmark::RegisterBenchmark(("read/" + name).c_str(),
                               read_frame<ToRank, decltype(&decode_to_rank)>, message,
                               &decode_to_rank);
}

const int kRegistered = [] {
  add("announce_161", announce());
  add("define", define());
  add("progress", progress());
  add("heartbeat", heartbeat());
  add("batch_1", batch(1));
  add("batch_24", batch(24));
  add("batch_161", batch(kKeys));
  return 0;
}();

}  // namespace
}  // namespace pushpull
