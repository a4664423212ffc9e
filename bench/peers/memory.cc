// The scale for one host: what memory itself gives to the bytes of a model.
// --variant copy (default) | sum, with a thread count behind it: copy2, sum2.
// Buffers rotate through more memory than a cache holds.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "bench/peers/workload.h"

namespace {

constexpr std::size_t kRotated = std::size_t{1200} << 20;

void work(bool copy, float* to, const float* from, std::size_t begin, std::size_t end) {
  if (copy) {
    std::memcpy(to + begin, from + begin, (end - begin) * sizeof(float));
  } else {
    for (std::size_t i = begin; i < end; ++i) to[i] += from[i];
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = pushpull::bench::parse_options(argc, argv);
  const std::string variant = options.variant.empty() ? "copy" : options.variant;
  const bool copy = variant.starts_with("copy");
  const char last = variant.back();
  const std::size_t threads = last >= '1' && last <= '9' ? std::size_t(last - '0') : 1;
  const auto counts = pushpull::bench::read_model(options.model);
  const std::size_t count = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t bytes = count * sizeof(float);
  std::vector<std::vector<float>> buffers(std::clamp<std::size_t>(kRotated / bytes, 2, 64));
  for (auto& buffer : buffers) buffer.assign(count, 1.f);

  std::vector<double> us;
  for (int i = 0; i < options.warmup + options.iters; ++i) {
    float* to = buffers[std::size_t(2 * i) % buffers.size()].data();
    const float* from = buffers[std::size_t(2 * i + 1) % buffers.size()].data();
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::jthread> others;
    for (std::size_t t = 1; t < threads; ++t) {
      others.emplace_back(work, copy, to, from, count * t / threads, count * (t + 1) / threads);
    }
    work(copy, to, from, 0, count / threads);
    others.clear();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    if (i >= options.warmup) us.push_back(took.count());
  }
  pushpull::bench::write_times(options, variant, bytes, us);
  return 0;
}
