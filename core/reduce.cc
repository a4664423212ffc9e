#include "core/reduce.h"

#include <cstring>
#include <string_view>
#include <vector>

// Accumulators are members of structs, which vectors whose size is known only when running cannot be.
// Processors with SVE run the NEON code, RISC-V the scalar one; sums have the same bits.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/reduce.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "core/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

void Add(DType dtype, void* out, const void* a, const void* b, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return AddKernel<PlainCodec<float>>(out, a, b, count);
    case DType::kFloat64:
      return AddKernel<PlainCodec<double>>(out, a, b, count);
    case DType::kFloat16:
      return AddKernel<HalfCodec>(out, a, b, count);
    case DType::kBfloat16:
      return AddKernel<BrainCodec>(out, a, b, count);
    case DType::kInt8:
    case DType::kUint8:
      return AddKernel<PlainCodec<uint8_t>>(out, a, b, count);
    case DType::kInt32:
      return AddKernel<PlainCodec<uint32_t>>(out, a, b, count);
    case DType::kInt64:
      return AddKernel<PlainCodec<uint64_t>>(out, a, b, count);
  }
}

void AddAll(DType dtype, void* out, const void* const* in, size_t inputs, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return AddAllKernel<PlainCodec<float>>(out, in, inputs, count);
    case DType::kFloat64:
      return AddAllKernel<PlainCodec<double>>(out, in, inputs, count);
    case DType::kFloat16:
      return AddAllKernel<HalfCodec>(out, in, inputs, count);
    case DType::kBfloat16:
      return AddAllKernel<BrainCodec>(out, in, inputs, count);
    case DType::kInt8:
    case DType::kUint8:
      return AddAllKernel<PlainCodec<uint8_t>>(out, in, inputs, count);
    case DType::kInt32:
      return AddAllKernel<PlainCodec<uint32_t>>(out, in, inputs, count);
    case DType::kInt64:
      return AddAllKernel<PlainCodec<uint64_t>>(out, in, inputs, count);
  }
}

// Floating-point types only.
void Scale(DType dtype, void* out, const void* in, double factor, size_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return ScaleKernel<PlainCodec<float>>(out, in, factor, count);
    case DType::kFloat64:
      return ScaleKernel<PlainCodec<double>>(out, in, factor, count);
    case DType::kFloat16:
      return ScaleKernel<HalfCodec>(out, in, factor, count);
    case DType::kBfloat16:
      return ScaleKernel<BrainCodec>(out, in, factor, count);
    default:
      return;
  }
}

const char* Name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

HWY_EXPORT(Add);
HWY_EXPORT(AddAll);
HWY_EXPORT(Scale);
HWY_EXPORT(Name);

namespace {

bool is_floating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
         dtype == DType::kBfloat16;
}

void copy(DType dtype, void* out, const void* in, size_t count) {
  if (out != in && count != 0) std::memcpy(out, in, count * size_of(dtype));
}

// What this CPU can run and this build contains, whatever a test has pinned.
const std::vector<int64_t>& available() {
  static const std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  return targets;
}

}  // namespace

void add(DType dtype, void* out, const void* a, const void* b, size_t count) {
  HWY_DYNAMIC_DISPATCH(Add)(dtype, out, a, b, count);
}

void add_all(DType dtype, void* out, std::span<const void* const> in, size_t count) {
  if (in.size() == 1) return copy(dtype, out, in[0], count);
  if (in.size() == 2) return add(dtype, out, in[0], in[1], count);
  HWY_DYNAMIC_DISPATCH(AddAll)(dtype, out, in.data(), in.size(), count);
}

void scale(DType dtype, void* out, const void* in, double factor, size_t count) {
  if (factor == 1.0 || !is_floating(dtype)) return copy(dtype, out, in, count);
  HWY_DYNAMIC_DISPATCH(Scale)(dtype, out, in, factor, count);
}

const char* reduce_target() { return HWY_DYNAMIC_DISPATCH(Name)(); }

std::span<const char* const> reduce_targets() {
  static const std::vector<const char*> names = [] {
    std::vector<const char*> list;
    for (int64_t target : available()) list.push_back(hwy::TargetName(target));
    return list;
  }();
  return names;
}

bool use_reduce_target(const char* name) {
  int64_t chosen = 0;
  for (int64_t target : available())
    if (name != nullptr && std::string_view(name) == hwy::TargetName(target)) chosen = target;
  if (name != nullptr && chosen == 0) return false;
  hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return true;
}

}  // namespace pushpull
#endif  // HWY_ONCE
