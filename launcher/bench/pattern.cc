#include "launcher/bench/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

namespace pushpull::launcher {
namespace {

constexpr size_t kPeriod = 61;
constexpr size_t kPeriodsInTile = 64;
constexpr int kLargestModulus = 1000;

// Up to which whole numbers are exact.
int64_t exact_up_to(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return 127;
    case DType::kUint8:
      return 255;
    case DType::kBfloat16:
      return 256;
    case DType::kFloat16:
      return 2048;
    default:
      return 1 << 24;
  }
}

uint16_t bfloat16_bits(int64_t value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16);
}

// Of a whole number from 0 to 2048.
uint16_t float16_bits(int64_t value) {
  if (value == 0) return 0;
  const int exponent = std::bit_width(static_cast<uint64_t>(value)) - 1;
  const auto fraction = static_cast<uint64_t>(value) << 10 >> exponent;
  return static_cast<uint16_t>((exponent + 15) << 10 | (fraction & 0x3ff));
}

float from_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  if (exponent == 0x1f) value = fraction == 0 ? INFINITY : NAN;
  return bits >> 15 != 0 ? -value : value;
}

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

void write_element(DType dtype, std::byte* to, int64_t value) {
  switch (dtype) {
    case DType::kFloat32:
      return store(to, static_cast<float>(value));
    case DType::kFloat64:
      return store(to, static_cast<double>(value));
    case DType::kFloat16:
      return store(to, float16_bits(value));
    case DType::kBfloat16:
      return store(to, bfloat16_bits(value));
    case DType::kInt8:
    case DType::kUint8:
      return store(to, static_cast<uint8_t>(value));
    case DType::kInt32:
      return store(to, static_cast<int32_t>(value));
    case DType::kInt64:
      return store(to, value);
  }
}

std::string show_element(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::kFloat32:
      return fmt::format("{}", load<float>(from));
    case DType::kFloat64:
      return fmt::format("{}", load<double>(from));
    case DType::kFloat16:
      return fmt::format("{}", from_float16(load<uint16_t>(from)));
    case DType::kBfloat16:
      return fmt::format("{}", std::bit_cast<float>(uint32_t{load<uint16_t>(from)} << 16));
    case DType::kInt8:
      return fmt::format("{}", int{load<int8_t>(from)});
    case DType::kUint8:
      return fmt::format("{}", int{load<uint8_t>(from)});
    case DType::kInt32:
      return fmt::format("{}", load<int32_t>(from));
    case DType::kInt64:
      return fmt::format("{}", load<int64_t>(from));
  }
  return {};
}

}  // namespace

Pattern::Pattern(DType dtype, int ranks)
    : dtype_(dtype),
      ranks_(ranks),
      modulus_(static_cast<int>(
          std::clamp<int64_t>(exact_up_to(dtype) / ranks + 1, 2, kLargestModulus))) {}

int Pattern::value(size_t element, int rank) const {
  return static_cast<int>((element % kPeriod + 1) * static_cast<size_t>(rank + 1) %
                          static_cast<size_t>(modulus_));
}

std::vector<int64_t> Pattern::period_of(int rank) const {
  std::vector<int64_t> period(kPeriod);
  for (size_t i = 0; i < kPeriod; ++i) period[i] = value(i, rank);
  return period;
}

std::vector<int64_t> Pattern::period_of_sum() const {
  std::vector<int64_t> period(kPeriod);
  for (int rank = 0; rank < ranks_; ++rank) {
    for (size_t i = 0; i < kPeriod; ++i) period[i] += value(i, rank);
  }
  return period;
}

std::vector<std::byte> Pattern::tile(const std::vector<int64_t>& period) const {
  const size_t size = size_of(dtype_);
  std::vector<std::byte> bytes(kPeriod * kPeriodsInTile * size);
  for (size_t i = 0; i < kPeriod * kPeriodsInTile; ++i) {
    write_element(dtype_, bytes.data() + i * size, period[i % kPeriod]);
  }
  return bytes;
}

void Pattern::fill(std::span<std::byte> data, int rank) const {
  const auto bytes = tile(period_of(rank));
  for (size_t at = 0; at < data.size(); at += bytes.size()) {
    std::memcpy(data.data() + at, bytes.data(), std::min(bytes.size(), data.size() - at));
  }
}

std::optional<std::string> Pattern::check_sum(std::span<const std::byte> data) const {
  return compare(data, period_of_sum());
}

std::optional<std::string> Pattern::check_value(std::span<const std::byte> data, int rank) const {
  return compare(data, period_of(rank));
}

std::optional<std::string> Pattern::compare(std::span<const std::byte> data,
                                            const std::vector<int64_t>& period) const {
  const auto bytes = tile(period);
  const size_t size = size_of(dtype_);
  for (size_t at = 0; at < data.size(); at += bytes.size()) {
    const size_t length = std::min(bytes.size(), data.size() - at);
    if (std::memcmp(data.data() + at, bytes.data(), length) == 0) continue;
    size_t i = 0;
    while (std::memcmp(data.data() + at + i, bytes.data() + i, size) == 0) i += size;
    return fmt::format("element {} is {} instead of {}", (at + i) / size,
                       show_element(dtype_, data.data() + at + i),
                       show_element(dtype_, bytes.data() + i));
  }
  return std::nullopt;
}

}  // namespace pushpull::launcher
