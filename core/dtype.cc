#include "core/dtype.h"

namespace pushpull {

size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUint8: return 1;
    case DType::kFloat16:
    case DType::kBfloat16: return 2;
    case DType::kFloat32:
    case DType::kInt32: return 4;
    case DType::kFloat64:
    case DType::kInt64: return 8;
  }
  return 0;
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kFloat16: return "float16";
    case DType::kBfloat16: return "bfloat16";
    case DType::kInt8: return "int8";
    case DType::kUint8: return "uint8";
    case DType::kInt32: return "int32";
    case DType::kInt64: return "int64";
  }
  return "unknown";
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (DType d : kAllDTypes)
    if (to_string(d) == name) return d;
  return std::nullopt;
}

std::optional<DType> dtype_from_int(int value) {
  for (DType d : kAllDTypes)
    if (static_cast<int>(d) == value) return d;
  return std::nullopt;
}

}  // namespace pushpull
