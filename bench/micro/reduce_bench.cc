// How fast the kernels of core/reduce.h are, against memcpy of the same ranges.
//
// Bytes per second count what is read and written: three ranges for add, two for memcpy and scale,
// N + 1 for add_all. Sizes: a chunk of the exchange, which stays in cache, and a tensor that fits
// in none.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/reduce.h"

namespace pushpull {
namespace {

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<void, Free>;

// Filled with ones or so: arithmetic on denormals would measure something else.
Buffer make_buffer(DType dtype, size_t bytes) {
  Buffer buffer(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
  auto* words = static_cast<uint16_t*>(buffer.get());
  uint16_t pattern = 1;
  if (dtype == DType::kFloat16) pattern = 0x3c00;
  if (dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kBfloat16)
    pattern = 0x3f80;
  for (size_t i = 0; i < bytes / 2; ++i) words[i] = pattern;
  return buffer;
}

void copy_memory(benchmark::State& state, size_t bytes) {
  const Buffer from = make_buffer(DType::kUint8, bytes);
  const Buffer to = make_buffer(DType::kUint8, bytes);
  for (auto _ : state) {
    std::memcpy(to.get(), from.get(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * bytes));
}

void add_ranges(benchmark::State& state, DType dtype, size_t bytes, bool in_place) {
  const Buffer a = make_buffer(dtype, bytes);
  const Buffer b = make_buffer(dtype, bytes);
  const Buffer other = make_buffer(dtype, bytes);
  void* out = in_place ? a.get() : other.get();
  for (auto _ : state) {
    add(dtype, out, a.get(), b.get(), bytes / size_of(dtype));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(3 * bytes));
}

void add_many(benchmark::State& state, DType dtype, size_t bytes, size_t inputs) {
  std::vector<Buffer> buffers;
  std::vector<const void*> in;
  for (size_t k = 0; k < inputs; ++k) {
    buffers.push_back(make_buffer(dtype, bytes));
    in.push_back(buffers.back().get());
  }
  const Buffer out = make_buffer(dtype, bytes);
  for (auto _ : state) {
    add_all(dtype, out.get(), in, bytes / size_of(dtype));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>((inputs + 1) * bytes));
}

void scale_range(benchmark::State& state, DType dtype, size_t bytes) {
  const Buffer in = make_buffer(dtype, bytes);
  const Buffer out = make_buffer(dtype, bytes);
  for (auto _ : state) {
    scale(dtype, out.get(), in.get(), 0.5, bytes / size_of(dtype));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * bytes));
}

const int kRegistered = [] {
  constexpr std::array<size_t, 2> kSizes = {size_t{128} << 10, size_t{102} << 20};
  for (size_t bytes : kSizes) {
    const std::string size = "/" + std::to_string(bytes >> 10) + "KiB";
    benchmark::RegisterBenchmark(("memcpy" + size).c_str(), copy_memory, bytes);
    for (DType dtype : kAllDTypes) {
      const std::string name = "/" + std::string(to_string(dtype)) + size;
      benchmark::RegisterBenchmark(("add" + name).c_str(), add_ranges, dtype, bytes, false);
      benchmark::RegisterBenchmark(("add_in_place" + name).c_str(), add_ranges, dtype, bytes, true);
      benchmark::RegisterBenchmark(("add_all_4" + name).c_str(), add_many, dtype, bytes, 4);
      benchmark::RegisterBenchmark(("scale" + name).c_str(), scale_range, dtype, bytes);
    }
  }
  return 0;
}();

}  // namespace
}  // namespace pushpull
