// Every kernel set this CPU has, against a scalar reference, bit for bit.
#include "core/reduce.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace pushpull {
namespace {

// --- the reference: IEEE 754 spelled out, nothing shared with the kernels
// -------------------------

float half_to_float(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const float sign = (half & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
}

uint16_t float_to_half(float value) {
  if (std::isnan(value)) return 0x7e00;
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double a = std::fabs(static_cast<double>(value));
  if (a >= 65520.0) return sign | 0x7c00;  // halfway between the largest and the next step
  if (a < std::ldexp(1.0, -14))
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(a, 24))));
  const int exponent = std::ilogb(a);
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(a, 10 - exponent)));  // 1024…2048
  return static_cast<uint16_t>(sign | (((exponent + 15) << 10) + (steps - 1024)));
}

float brain_to_float(uint16_t brain) {
  return std::bit_cast<float>(static_cast<uint32_t>(brain) << 16);
}

uint16_t float_to_brain(float value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto below = static_cast<uint16_t>(bits >> 16);
  const uint32_t rest = bits & 0xffff;
  const bool up = rest > 0x8000 || (rest == 0x8000 && (below & 1) != 0);
  return static_cast<uint16_t>(below + (up ? 1 : 0));
}

template <class T>
T read(const std::vector<std::byte>& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void write(std::vector<std::byte>& bytes, size_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
}

using Bytes = std::vector<std::byte>;

template <class Bits, class Value>
void sum_as(Bytes& out, const std::vector<Bytes>& in, size_t i, Value (*from)(Bits),
            Bits (*to)(Value)) {
  Value sum = from(read<Bits>(in[0], i));
  for (size_t k = 1; k < in.size(); ++k) sum = static_cast<Value>(sum + from(read<Bits>(in[k], i)));
  write<Bits>(out, i, to(sum));
}
template <class T>
T same(T value) {
  return value;
}

Bytes reference_sum(DType dtype, const std::vector<Bytes>& in, size_t count) {
  Bytes out(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) {
    switch (dtype) {
      case DType::kFloat32:
        sum_as<float, float>(out, in, i, same, same);
        break;
      case DType::kFloat64:
        sum_as<double, double>(out, in, i, same, same);
        break;
      case DType::kFloat16:
        sum_as<uint16_t, float>(out, in, i, half_to_float, float_to_half);
        break;
      case DType::kBfloat16:
        sum_as<uint16_t, float>(out, in, i, brain_to_float, float_to_brain);
        break;
      case DType::kInt8:
      case DType::kUint8:
        sum_as<uint8_t, uint8_t>(out, in, i, same, same);
        break;
      case DType::kInt32:
        sum_as<uint32_t, uint32_t>(out, in, i, same, same);
        break;
      case DType::kInt64:
        sum_as<uint64_t, uint64_t>(out, in, i, same, same);
        break;
    }
  }
  return out;
}

Bytes reference_scale(DType dtype, const Bytes& in, double factor, size_t count) {
  Bytes out = in;
  const auto f = static_cast<float>(factor);
  for (size_t i = 0; i < count; ++i) {
    switch (dtype) {
      case DType::kFloat32:
        write(out, i, read<float>(in, i) * f);
        break;
      case DType::kFloat64:
        write(out, i, read<double>(in, i) * factor);
        break;
      case DType::kFloat16:
        write(out, i, float_to_half(half_to_float(read<uint16_t>(in, i)) * f));
        break;
      case DType::kBfloat16:
        write(out, i, float_to_brain(brain_to_float(read<uint16_t>(in, i)) * f));
        break;
      default:
        break;
    }
  }
  return out;
}

// --- comparing
// ------------------------------------------------------------------------------------

bool is_nan(DType dtype, const std::byte* p) {
  uint64_t bits = 0;
  std::memcpy(&bits, p, size_of(dtype));
  switch (dtype) {
    case DType::kFloat32:
      return (bits & 0x7fffffff) > 0x7f800000;
    case DType::kFloat64:
      return (bits & 0x7fffffffffffffff) > 0x7ff0000000000000;
    case DType::kFloat16:
      return (bits & 0x7fff) > 0x7c00;
    case DType::kBfloat16:
      return (bits & 0x7fff) > 0x7f80;
    default:
      return false;
  }
}

// Equal bits, or NaN in both.
testing::AssertionResult same_values(DType dtype, const std::byte* got, const Bytes& want,
                                     size_t count) {
  const size_t width = size_of(dtype);
  for (size_t i = 0; i < count; ++i) {
    const std::byte* g = got + i * width;
    const std::byte* w = want.data() + i * width;
    if (std::memcmp(g, w, width) == 0 || (is_nan(dtype, g) && is_nan(dtype, w))) continue;
    uint64_t got_bits = 0;
    uint64_t want_bits = 0;
    std::memcpy(&got_bits, g, width);
    std::memcpy(&want_bits, w, width);
    return testing::AssertionFailure() << "element " << i << " of " << count << ": got " << std::hex
                                       << got_bits << ", want " << want_bits;
  }
  return testing::AssertionSuccess();
}

// Random bits, with the special values of the type (zeros, denormals, infinities, NaN, the largest)
// mixed in, and numbers of like size whose sums round.
Bytes random_values(DType dtype, size_t count, std::mt19937_64& random) {
  const size_t width = size_of(dtype);
  Bytes out(count * width);
  int mantissa = 0;
  int exponent = 0;
  if (dtype == DType::kFloat16) mantissa = 10, exponent = 5;
  if (dtype == DType::kBfloat16) mantissa = 7, exponent = 8;
  if (dtype == DType::kFloat32) mantissa = 23, exponent = 8;
  if (dtype == DType::kFloat64) mantissa = 52, exponent = 11;
  for (size_t i = 0; i < count; ++i) {
    uint64_t bits = random();
    if (mantissa != 0) {
      const uint64_t fraction = bits & ((uint64_t{1} << mantissa) - 1);
      const uint64_t sign = (bits >> 63) << (mantissa + exponent);
      const uint64_t top = (uint64_t{1} << exponent) - 1;
      const uint64_t middle = top / 2;
      const uint64_t kind = (bits >> 56) % 10;
      if (kind == 0) bits = sign;
      if (kind == 1) bits = sign | fraction;                          // denormal
      if (kind == 2) bits = sign | (top << mantissa);                 // infinity
      if (kind == 3) bits = sign | (top << mantissa) | fraction | 1;  // NaN
      if (kind == 4) bits = sign | (((top - 1) << mantissa) | fraction);
      if (kind == 5) bits = sign | (uint64_t{1} << mantissa) | fraction;
      if (kind >= 6 && kind <= 8)
        bits = sign | ((middle + (bits >> 60) % 3) << mantissa) | fraction;
    }
    std::memcpy(out.data() + i * width, &bits, width);
  }
  return out;
}

// A range in the middle of guard bytes, `shift` elements behind a 64-byte boundary.
class Range {
 public:
  Range(DType dtype, const Bytes& content, size_t shift)
      : bytes_(kGuard + 64 + content.size() + 64 * 8 + kGuard, kFill), size_(content.size()) {
    const auto base = reinterpret_cast<uintptr_t>(bytes_.data()) + kGuard;
    const size_t aligned = (64 - base % 64) % 64;
    start_ = bytes_.data() + kGuard + aligned + shift * size_of(dtype);
    if (size_ != 0) std::memcpy(start_, content.data(), size_);
  }
  Range(Range&&) noexcept = default;

  std::byte* data() { return start_; }
  bool guards_intact() const {
    for (const std::byte* p = bytes_.data(); p < start_; ++p)
      if (*p != kFill) return false;
    for (const std::byte* p = start_ + size_; p < bytes_.data() + bytes_.size(); ++p)
      if (*p != kFill) return false;
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kFill{0xa5};
  Bytes bytes_;
  size_t size_;
  std::byte* start_ = nullptr;
};

constexpr size_t kCounts[] = {0,  1,  2,  3,  5,  7,  8,   15,  16,  17,  31,   32,
                              33, 63, 64, 65, 66, 99, 127, 255, 257, 511, 1023, 4099};

class ReduceTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_TRUE(use_reduce_target(GetParam())); }
  void TearDown() override { use_reduce_target(nullptr); }
  std::mt19937_64 random_{20240611};
};

TEST_P(ReduceTest, RunsWhatWasAskedFor) { EXPECT_STREQ(reduce_target(), GetParam()); }

TEST_P(ReduceTest, AddMatchesTheReference) {
  for (DType dtype : kAllDTypes) {
    for (size_t count : kCounts) {
      const std::vector<Bytes> in = {random_values(dtype, count, random_),
                                     random_values(dtype, count, random_)};
      const Bytes want = reference_sum(dtype, in, count);
      const std::string where = std::string(to_string(dtype)) + " x " + std::to_string(count);
      Range a(dtype, in[0], random_() % 8);
      Range b(dtype, in[1], random_() % 8);
      Range out(dtype, Bytes(want.size()), random_() % 8);
      add(dtype, out.data(), a.data(), b.data(), count);
      EXPECT_TRUE(same_values(dtype, out.data(), want, count)) << where;
      EXPECT_TRUE(out.guards_intact()) << where;

      Range onto_a(dtype, in[0], 1);
      add(dtype, onto_a.data(), onto_a.data(), b.data(), count);
      EXPECT_TRUE(same_values(dtype, onto_a.data(), want, count)) << where << ", out is a";
      EXPECT_TRUE(onto_a.guards_intact()) << where;

      Range onto_b(dtype, in[1], 3);
      add(dtype, onto_b.data(), a.data(), onto_b.data(), count);
      EXPECT_TRUE(same_values(dtype, onto_b.data(), want, count)) << where << ", out is b";
      EXPECT_TRUE(onto_b.guards_intact()) << where;
    }
  }
}

TEST_P(ReduceTest, AddAllRoundsOnceAndInOrder) {
  for (DType dtype : kAllDTypes) {
    for (size_t inputs : {1, 2, 3, 4, 8, 9}) {
      for (size_t count : kCounts) {
        std::vector<Bytes> in;
        for (size_t k = 0; k < inputs; ++k) in.push_back(random_values(dtype, count, random_));
        const Bytes want = inputs == 1 ? in[0] : reference_sum(dtype, in, count);
        const std::string where = std::string(to_string(dtype)) + " x " + std::to_string(count) +
                                  " of " + std::to_string(inputs);
        std::vector<Range> ranges;
        std::vector<const void*> pointers;
        for (const Bytes& content : in) ranges.emplace_back(dtype, content, random_() % 8);
        for (Range& range : ranges) pointers.push_back(range.data());
        Range out(dtype, Bytes(want.size()), random_() % 8);
        add_all(dtype, out.data(), pointers, count);
        EXPECT_TRUE(same_values(dtype, out.data(), want, count)) << where;
        EXPECT_TRUE(out.guards_intact()) << where;

        Range& onto = ranges[random_() % inputs];
        add_all(dtype, onto.data(), pointers, count);
        EXPECT_TRUE(same_values(dtype, onto.data(), want, count)) << where << ", in place";
        EXPECT_TRUE(onto.guards_intact()) << where;
      }
    }
  }
}

// Long enough for the way around the cache; starts and ends off a vector boundary.
TEST_P(ReduceTest, LongSums) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kUint8}) {
    const size_t count = (size_t{8} << 20) / size_of(dtype) + 77;
    Bytes pattern = random_values(dtype, 1021, random_);
    std::vector<Bytes> in(3, Bytes(count * size_of(dtype)));
    for (size_t k = 0; k < in.size(); ++k)
      for (size_t i = 0; i < in[k].size(); ++i) in[k][i] = pattern[(i + 8 * k) % pattern.size()];
    Range out(dtype, Bytes(in[0].size()), 3);
    add(dtype, out.data(), in[0].data(), in[1].data(), count);
    EXPECT_TRUE(same_values(dtype, out.data(), reference_sum(dtype, {in[0], in[1]}, count), count));
    EXPECT_TRUE(out.guards_intact());
    const void* pointers[] = {in[0].data(), in[1].data(), in[2].data()};
    add_all(dtype, out.data(), pointers, count);
    EXPECT_TRUE(same_values(dtype, out.data(), reference_sum(dtype, in, count), count));
    EXPECT_TRUE(out.guards_intact());
  }
}

TEST_P(ReduceTest, ScaleMatchesTheReference) {
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (double factor : {1.0, 0.25, 1.0 / 3, -1e-5, 7e4, 0.0}) {
      for (size_t count : kCounts) {
        const Bytes in = random_values(dtype, count, random_);
        const Bytes want = reference_scale(dtype, in, factor, count);
        const std::string where = std::string(to_string(dtype)) + " x " + std::to_string(count) +
                                  " by " + std::to_string(factor);
        Range from(dtype, in, random_() % 8);
        Range out(dtype, Bytes(want.size()), random_() % 8);
        scale(dtype, out.data(), from.data(), factor, count);
        EXPECT_TRUE(same_values(dtype, out.data(), want, count)) << where;
        EXPECT_TRUE(out.guards_intact()) << where;
        scale(dtype, from.data(), from.data(), factor, count);
        EXPECT_TRUE(same_values(dtype, from.data(), want, count)) << where << ", in place";
      }
    }
  }
}

TEST_P(ReduceTest, ScaleOfIntegersCopies) {
  for (DType dtype : {DType::kInt8, DType::kUint8, DType::kInt32, DType::kInt64}) {
    const Bytes in = random_values(dtype, 77, random_);
    Bytes out(in.size());
    scale(dtype, out.data(), in.data(), 1.0, 77);
    EXPECT_EQ(out, in);
  }
}

// Each of the 65536 values of the 16-bit types, scaled so that results fall among normal numbers,
// halfway cases, denormals, zero and infinity.
TEST_P(ReduceTest, EveryHalfAndBrainValue) {
  constexpr size_t kValues = 65536;
  for (DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Bytes all(kValues * 2);
    for (size_t i = 0; i < kValues; ++i) write(all, i, static_cast<uint16_t>(i));
    const Bytes zeros(kValues * 2);
    Bytes out(kValues * 2);
    add(dtype, out.data(), all.data(), zeros.data(), kValues);
    EXPECT_TRUE(
        same_values(dtype, out.data(), reference_sum(dtype, {all, zeros}, kValues), kValues));
    for (double factor :
         {0.5, 0.375, 1.5, 1.0 / 1024, 3.0 / 4096, 1e-7, 1e-38, 1.0009765625, 33.0}) {
      scale(dtype, out.data(), all.data(), factor, kValues);
      EXPECT_TRUE(
          same_values(dtype, out.data(), reference_scale(dtype, all, factor, kValues), kValues))
          << to_string(dtype) << " by " << factor;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ReduceTest, testing::ValuesIn(reduce_targets()),
                         [](const auto& target) { return std::string(target.param); });

TEST(Reduce, SumsOf16BitTypesOverflowOnlyAtTheEnd) {
  const uint16_t big = 0x7bff;    // 65504
  const uint16_t minus = 0xfbff;  // -65504
  const void* in[] = {&big, &big, &minus};
  uint16_t out = 0;
  add_all(DType::kFloat16, &out, in, 1);
  EXPECT_EQ(out, big);
  add(DType::kFloat16, &out, &big, &big, 1);
  EXPECT_EQ(out, 0x7c00);
}

TEST(Reduce, IntegersWrapAround) {
  const int32_t a = INT32_MAX;
  const int32_t b = 1;
  int32_t out = 0;
  add(DType::kInt32, &out, &a, &b, 1);
  EXPECT_EQ(out, INT32_MIN);
  const uint8_t c = 200;
  uint8_t sum = 0;
  add(DType::kUint8, &sum, &c, &c, 1);
  EXPECT_EQ(sum, 144);
}

TEST(Reduce, UnknownTargetIsRefused) {
  const std::string before = reduce_target();
  EXPECT_FALSE(use_reduce_target("AVX9"));
  EXPECT_EQ(reduce_target(), before);
  EXPECT_FALSE(reduce_targets().empty());
}

}  // namespace
}  // namespace pushpull
