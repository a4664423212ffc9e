#include "tests/support/reference.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace pushpull::testing {
namespace {

// Numbers of the element's own type, or float for the 16-bit ones.
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

float widen(Half h) { return half_to_float(h.bits); }
float widen(Brain b) { return brain_to_float(b.bits); }
template <class T>
T widen(T value) {
  return value;
}

template <class T>
struct Narrow {
  template <class V>
  static T from(V value) {
    return static_cast<T>(value);
  }
};
template <>
struct Narrow<Half> {
  static Half from(float value) { return {float_to_half(value)}; }
};
template <>
struct Narrow<Brain> {
  static Brain from(float value) { return {float_to_brain(value)}; }
};

template <class T>
T scaled(T value, double factor) {
  if (factor == 1.0) return value;
  if constexpr (std::is_same_v<T, double>)
    return value * factor;
  else if constexpr (std::is_integral_v<T>)
    return value;
  else
    return Narrow<T>::from(static_cast<float>(widen(value)) * static_cast<float>(factor));
}

template <class T>
auto plus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  } else {
    return a + b;
  }
}

template <class T>
T load(const Bytes& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// value(first + 1) + value(first + 2) + ... + value(first), modulo n.
template <class T, class Value>
T sum_around(size_t n, size_t first, Rounding16 rounding, Value value) {
  auto sum = widen(value((first + 1) % n));
  for (size_t step = 2; step <= n; ++step) {
    sum = plus(sum, widen(value((first + step) % n)));
    if (rounding == Rounding16::kEachAddition) sum = widen(Narrow<T>::from(sum));
  }
  return Narrow<T>::from(sum);
}

template <class T>
void sum_into(Bytes& out, size_t count, const std::vector<Bytes>& inputs, const Reduce& reduce,
              Rounding16 rounding) {
  const size_t length = slice_length(count, static_cast<int>(inputs.size()));
  for (size_t i = 0; i < count; ++i) {
    const T sum = sum_around<T>(inputs.size(), i / length, rounding, [&](size_t rank) {
      return scaled(load<T>(inputs[rank], i), reduce.prescale);
    });
    const T result = scaled(sum, reduce.postscale);
    std::memcpy(out.data() + i * sizeof(T), &result, sizeof(T));
  }
}

template <class T>
void sum_by_host(Bytes& out, size_t count, const std::vector<Bytes>& inputs, const Layout& layout,
                 int slices, const Reduce& reduce, Rounding16 rounding) {
  const size_t length = slice_length(count, slices);
  const auto hosts = static_cast<size_t>(layout.hosts());
  for (size_t i = 0; i < count; ++i) {
    const auto of_host = [&](size_t host) {
      const std::vector<int>& ranks = layout.ranks_of(static_cast<int>(host));
      return sum_around<T>(ranks.size(), 0, Rounding16::kOnce, [&](size_t local) {
        const auto rank = static_cast<size_t>(ranks[local]);
        return scaled(load<T>(inputs[rank], i), reduce.prescale);
      });
    };
    const T result =
        scaled(sum_around<T>(hosts, i / length % hosts, rounding, of_host), reduce.postscale);
    std::memcpy(out.data() + i * sizeof(T), &result, sizeof(T));
  }
}

uint32_t mix(uint64_t x) {
  x *= 0x9e3779b97f4a7c15u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return static_cast<uint32_t>(x >> 32);
}

template <class T>
void fill(Bytes& out, size_t count, uint64_t seed) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t random = mix(seed + i);
    T value;
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(random);
    } else {
      // About -8 to 8, with bits all the way down, so that the order of additions shows.
      value = Narrow<T>::from(std::ldexp(static_cast<float>(static_cast<int32_t>(random)), -28));
    }
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
}

// Calls f with a value of the element type.
template <class F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat32:
      return f(float{});
    case DType::kFloat64:
      return f(double{});
    case DType::kFloat16:
      return f(Half{});
    case DType::kBfloat16:
      return f(Brain{});
    case DType::kInt8:
      return f(int8_t{});
    case DType::kUint8:
      return f(uint8_t{});
    case DType::kInt32:
      return f(int32_t{});
    case DType::kInt64:
      return f(int64_t{});
  }
}

}  // namespace

float half_to_float(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

uint16_t float_to_half(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | 0x7e00;
  const float size = std::fabs(value);
  if (size >= 65520.0f) return sign | 0x7c00;
  if (size < std::ldexp(1.0f, -14))  // a multiple of 2^-24; 1024 of them are the smallest normal
    return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));
  int exponent = 0;
  const float fraction = std::frexp(size, &exponent);                             // in [0.5, 1)
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(fraction, 11)));  // 1024 to 2048
  return sign | static_cast<uint16_t>((exponent + 14) * 1024 + units - 1024);
}

float brain_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

uint16_t float_to_brain(float value) {
  if (std::isnan(value)) return std::signbit(value) ? 0xffc0 : 0x7fc0;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t below = bits & 0xffff;
  uint32_t upper = bits >> 16;
  if (below > 0x8000 || (below == 0x8000 && (upper & 1) != 0)) ++upper;
  return static_cast<uint16_t>(upper);
}

Bytes make_input(DType dtype, size_t count, int rank, uint32_t seed) {
  Bytes bytes(count * size_of(dtype));
  const uint64_t start = (uint64_t{seed} << 40) + (static_cast<uint64_t>(rank) << 32);
  with_type(dtype, [&](auto type) { fill<decltype(type)>(bytes, count, start); });
  return bytes;
}

Bytes reference_sum(DType dtype, size_t count, const std::vector<Bytes>& inputs,
                    const Reduce& reduce, Rounding16 rounding) {
  Bytes out(count * size_of(dtype));
  with_type(dtype,
            [&](auto type) { sum_into<decltype(type)>(out, count, inputs, reduce, rounding); });
  return out;
}

Bytes reference_sum_by_host(DType dtype, size_t count, const std::vector<Bytes>& inputs,
                            const Layout& layout, int slices, const Reduce& reduce,
                            Rounding16 rounding) {
  Bytes out(count * size_of(dtype));
  with_type(dtype, [&](auto type) {
    sum_by_host<decltype(type)>(out, count, inputs, layout, slices, reduce, rounding);
  });
  return out;
}

}  // namespace pushpull::testing
