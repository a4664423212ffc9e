// The kernels behind core/reduce.h, written once and compiled for every kernel set (Highway's
// foreach_target includes this file several times, hence no #pragma once).
//
// A codec says how elements of one dtype enter an accumulator, are added there, and leave it. The
// remainder of a range goes through the same vector code by way of a small padded copy, so that an
// element's bits do not depend on where in the range it stands.
#if defined(PUSHPULL_CORE_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_CORE_REDUCE_INL_H_
#undef PUSHPULL_CORE_REDUCE_INL_H_
#else
#define PUSHPULL_CORE_REDUCE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr size_t kVectorBytes = 64;  // at most
// Sums at least this long that go to memory of their own bypass the cache, which saves reading what
// is overwritten (measured: 102 MB of float32 in 12.7 instead of 17.8 ms; in place nothing).
inline constexpr size_t kStreamBytes = size_t{8} << 20;

// Types that are added as they are. Signed integers use the unsigned codec: the same bits, and
// wrapping around is defined.
template <class T>
struct PlainCodec {
  using Element = T;
  using Factor = T;
  static constexpr bool kStreams = true;
  using D = hn::ScalableTag<T>;
  using Sum = hn::Vec<D>;

  static HWY_INLINE size_t step() { return hn::Lanes(D()); }
  static HWY_INLINE Sum load(const T* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE Sum add(Sum a, Sum b) { return hn::Add(a, b); }
  static HWY_INLINE Sum scale(Sum a, Factor factor) { return hn::Mul(a, hn::Set(D(), factor)); }
  static HWY_INLINE void store(Sum a, T* to) { hn::StoreU(a, D(), to); }
  static HWY_INLINE void stream(Sum a, T* to) { hn::Stream(a, D(), to); }
};

// Float16 accumulates in float32.
struct HalfCodec {
  using Element = uint16_t;
  using Factor = float;
  static constexpr bool kStreams = false;  // no gain measured
  using D = hn::ScalableTag<float>;
  using DU = hn::RebindToUnsigned<D>;
  using DI = hn::RebindToSigned<D>;
  using Sum = hn::Vec<D>;

  static HWY_INLINE size_t step() { return hn::Lanes(D()); }
  static HWY_INLINE Sum add(Sum a, Sum b) { return hn::Add(a, b); }
  static HWY_INLINE Sum scale(Sum a, Factor factor) { return hn::Mul(a, hn::Set(D(), factor)); }

// Highway's own conversions for CPUs without F16C know neither infinity nor rounding.
#if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_EMU128 || \
    HWY_TARGET == HWY_SCALAR
  static HWY_INLINE Sum load(const uint16_t* from) {
    const D d;
    const DI di;
    const auto half = hn::PromoteTo(di, hn::LoadU(hn::Rebind<uint16_t, D>(), from));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(half, hn::Set(di, 0x7fff)));
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(di, 0x8000)));
    const auto normal = hn::Add(magnitude, hn::Set(di, (127 - 15) << 23));
    const auto infinite = hn::Add(normal, hn::Set(di, (128 - 16) << 23));
    // 2^-14 * 1.mantissa - 2^-14 normalises a denormal exactly.
    const auto magic = hn::Set(di, (127 - 14) << 23);
    const auto small =
        hn::BitCast(di, hn::Sub(hn::BitCast(d, hn::Add(magnitude, magic)), hn::BitCast(d, magic)));
    auto bits = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, 1 << 23)), small, normal);
    bits = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, (31 << 23) - 1)), infinite, bits);
    return hn::BitCast(d, hn::Or(bits, sign));
  }

  static HWY_INLINE void store(Sum sum, uint16_t* to) {
    const D d;
    const DI di;
    const auto bits = hn::BitCast(di, sum);
    const auto magnitude = hn::And(bits, hn::Set(di, 0x7fffffff));
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 0x8000));
    // Nearest even: add just under half of the last kept bit, and that bit itself.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(di, 1));
    const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(di, 0xfff)), odd);
    const auto normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(di, (127 - 15) << 23)));
    // Adding 0.5 leaves a denormal's 2^-24 steps in the last bits, rounded by the addition.
    const auto magic = hn::Set(di, 126 << 23);
    const auto small =
        hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), hn::BitCast(d, magic))), magic);
    auto half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, (127 - 14) << 23)), small, normal);
    half = hn::IfThenElse(hn::Gt(half, hn::Set(di, 0x7c00)), hn::Set(di, 0x7c00), half);
    half = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, 0x7f800000)), hn::Set(di, 0x7e00), half);
    const hn::Rebind<uint16_t, D> d16;
    hn::StoreU(hn::DemoteTo(d16, hn::Or(half, sign)), d16, to);
  }
#else
  static HWY_INLINE Sum load(const uint16_t* from) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const hn::Rebind<uint16_t, D> du16;
    return hn::PromoteTo(D(), hn::BitCast(d16, hn::LoadU(du16, from)));
  }
  static HWY_INLINE void store(Sum sum, uint16_t* to) {
    const hn::Rebind<hwy::float16_t, D> d16;
    const hn::Rebind<uint16_t, D> du16;
    hn::StoreU(hn::BitCast(du16, hn::DemoteTo(d16, sum)), du16, to);
  }
#endif
};

// Bfloat16 accumulates in float32. Rounding by integers: instructions that convert flush denormals.
struct BrainCodec {
  using Element = uint16_t;
  using Factor = float;
  static constexpr bool kStreams = false;  // no gain measured
  using D = hn::ScalableTag<float>;
  using DU = hn::RebindToUnsigned<D>;
  using V = hn::Vec<D>;
  using VU = hn::Vec<DU>;

  // The upper half of each lane is the result. NaN needs no care: one that comes from bfloat16, or
  // from an operation that has no result, has zeros in its lower half, so nothing is carried.
  static HWY_INLINE VU round(V value) {
    const DU du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    return hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
  }

#if HWY_TARGET == HWY_SCALAR
  using Sum = V;
  static HWY_INLINE size_t step() { return 1; }
  static HWY_INLINE Sum load(const uint16_t* from) {
    return hn::BitCast(D(), hn::Set(DU(), static_cast<uint32_t>(*from) << 16));
  }
  static HWY_INLINE Sum add(Sum a, Sum b) { return hn::Add(a, b); }
  static HWY_INLINE Sum scale(Sum a, Factor factor) { return hn::Mul(a, hn::Set(D(), factor)); }
  static HWY_INLINE void store(Sum a, uint16_t* to) {
    *to = static_cast<uint16_t>(hn::GetLane(round(a)) >> 16);
  }
#else
  // Neighbours stay in their 32-bit lane: no shuffles.
  struct Sum {
    V even;
    V odd;
  };
  using D16 = hn::Repartition<uint16_t, D>;
  static HWY_INLINE size_t step() { return hn::Lanes(D16()); }
  static HWY_INLINE Sum load(const uint16_t* from) {
    const auto both = hn::BitCast(DU(), hn::LoadU(D16(), from));
    return {hn::BitCast(D(), hn::ShiftLeft<16>(both)),
            hn::BitCast(D(), hn::And(both, hn::Set(DU(), 0xffff0000u)))};
  }
  static HWY_INLINE Sum add(Sum a, Sum b) {
    return {hn::Add(a.even, b.even), hn::Add(a.odd, b.odd)};
  }
  static HWY_INLINE Sum scale(Sum a, Factor factor) {
    const auto f = hn::Set(D(), factor);
    return {hn::Mul(a.even, f), hn::Mul(a.odd, f)};
  }
  static HWY_INLINE void store(Sum a, uint16_t* to) {
    const auto low = hn::BitCast(D16(), hn::ShiftRight<16>(round(a.even)));
    hn::StoreU(hn::OddEven(hn::BitCast(D16(), round(a.odd)), low), D16(), to);
  }
#endif
};

// Up to one vector of elements, copied to where a whole vector can be read and written.
template <class Element>
struct Padded {
  alignas(kVectorBytes) Element data[kVectorBytes / sizeof(Element)] = {};

  HWY_INLINE const Element* fill(const Element* from, size_t count) {
    std::memcpy(data, from, count * sizeof(Element));
    return data;
  }
};

template <class C, bool kStream>
HWY_INLINE void put(typename C::Sum sum, typename C::Element* to) {
  if constexpr (kStream)
    C::stream(sum, to);
  else
    C::store(sum, to);
}

// Elements before the first vector boundary, from where on a long sum may be streamed.
template <class E>
HWY_INLINE size_t elements_to_boundary(const E* p) {
  return (kVectorBytes - reinterpret_cast<uintptr_t>(p) % kVectorBytes) % kVectorBytes / sizeof(E);
}

template <class C, bool kStream, class E = typename C::Element>
void AddRange(E* o, const E* x, const E* y, size_t count) {
  const size_t step = C::step();
  size_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    const auto s0 = C::add(C::load(x + i), C::load(y + i));
    const auto s1 = C::add(C::load(x + i + step), C::load(y + i + step));
    const auto s2 = C::add(C::load(x + i + 2 * step), C::load(y + i + 2 * step));
    const auto s3 = C::add(C::load(x + i + 3 * step), C::load(y + i + 3 * step));
    put<C, kStream>(s0, o + i);
    put<C, kStream>(s1, o + i + step);
    put<C, kStream>(s2, o + i + 2 * step);
    put<C, kStream>(s3, o + i + 3 * step);
  }
  for (; i + step <= count; i += step) C::store(C::add(C::load(x + i), C::load(y + i)), o + i);
  if (i == count) return;
  Padded<E> left;
  Padded<E> right;
  const auto sum =
      C::add(C::load(left.fill(x + i, count - i)), C::load(right.fill(y + i, count - i)));
  C::store(sum, left.data);
  std::memcpy(o + i, left.data, (count - i) * sizeof(E));
}

template <class C>
void AddKernel(void* out, const void* a, const void* b, size_t count) {
  using E = typename C::Element;
  auto* const o = static_cast<E*>(out);
  const auto* const x = static_cast<const E*>(a);
  const auto* const y = static_cast<const E*>(b);
  if constexpr (C::kStreams) {
    if (count * sizeof(E) >= kStreamBytes && out != a && out != b) {
      const size_t head = elements_to_boundary(o);
      AddRange<C, false>(o, x, y, head);
      AddRange<C, true>(o + head, x + head, y + head, count - head);
      hwy::FlushStream();
      return;
    }
  }
  AddRange<C, false>(o, x, y, count);
}

// Elements [first, last) of every input.
template <class C, bool kStream, class E = typename C::Element>
void AddAllRange(E* o, const void* const* in, size_t inputs, size_t first, size_t last) {
  const auto input = [in](size_t k) { return static_cast<const E*>(in[k]); };
  const size_t step = C::step();
  size_t i = first;
  for (; i + 4 * step <= last; i += 4 * step) {
    const E* from = input(0) + i;
    auto s0 = C::load(from);
    auto s1 = C::load(from + step);
    auto s2 = C::load(from + 2 * step);
    auto s3 = C::load(from + 3 * step);
    for (size_t k = 1; k < inputs; ++k) {
      from = input(k) + i;
      s0 = C::add(s0, C::load(from));
      s1 = C::add(s1, C::load(from + step));
      s2 = C::add(s2, C::load(from + 2 * step));
      s3 = C::add(s3, C::load(from + 3 * step));
    }
    put<C, kStream>(s0, o + i);
    put<C, kStream>(s1, o + i + step);
    put<C, kStream>(s2, o + i + 2 * step);
    put<C, kStream>(s3, o + i + 3 * step);
  }
  for (; i + step <= last; i += step) {
    auto sum = C::load(input(0) + i);
    for (size_t k = 1; k < inputs; ++k) sum = C::add(sum, C::load(input(k) + i));
    C::store(sum, o + i);
  }
  if (i == last) return;
  Padded<E> rest;
  auto sum = C::load(rest.fill(input(0) + i, last - i));
  for (size_t k = 1; k < inputs; ++k) sum = C::add(sum, C::load(rest.fill(input(k) + i, last - i)));
  C::store(sum, rest.data);
  std::memcpy(o + i, rest.data, (last - i) * sizeof(E));
}

template <class C>
void AddAllKernel(void* out, const void* const* in, size_t inputs, size_t count) {
  using E = typename C::Element;
  auto* const o = static_cast<E*>(out);
  if constexpr (C::kStreams) {
    if (count * sizeof(E) >= kStreamBytes && std::find(in, in + inputs, out) == in + inputs) {
      const size_t head = elements_to_boundary(o);
      AddAllRange<C, false>(o, in, inputs, 0, head);
      AddAllRange<C, true>(o, in, inputs, head, count);
      hwy::FlushStream();
      return;
    }
  }
  AddAllRange<C, false>(o, in, inputs, 0, count);
}

template <class C>
void ScaleKernel(void* out, const void* in, double factor, size_t count) {
  using E = typename C::Element;
  auto* const o = static_cast<E*>(out);
  const auto* const x = static_cast<const E*>(in);
  const auto f = static_cast<typename C::Factor>(factor);
  const size_t step = C::step();
  size_t i = 0;
  for (; i + 4 * step <= count; i += 4 * step) {
    const auto s0 = C::scale(C::load(x + i), f);
    const auto s1 = C::scale(C::load(x + i + step), f);
    const auto s2 = C::scale(C::load(x + i + 2 * step), f);
    const auto s3 = C::scale(C::load(x + i + 3 * step), f);
    C::store(s0, o + i);
    C::store(s1, o + i + step);
    C::store(s2, o + i + 2 * step);
    C::store(s3, o + i + 3 * step);
  }
  for (; i + step <= count; i += step) C::store(C::scale(C::load(x + i), f), o + i);
  if (i == count) return;
  Padded<E> rest;
  C::store(C::scale(C::load(rest.fill(x + i, count - i)), f), rest.data);
  std::memcpy(o + i, rest.data, (count - i) * sizeof(E));
}

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif
