// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace pushpull {

// The values are part of the wire format and of the C API; they do not change.
enum class DType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,   // IEEE binary16
  kUint8 = 3,
  kInt32 = 4,
  kInt8 = 5,
  kInt64 = 6,
  kBfloat16 = 7,
};

inline constexpr DType kAllDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                       DType::kBfloat16, DType::kInt8,   DType::kUint8,
                                       DType::kInt32,   DType::kInt64};

// Bytes of one element: 1, 2, 4 or 8.
size_t size_of(DType dtype);
// "float32", "bfloat16", …
std::string_view to_string(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);
// From a byte of the wire or an int of the C API.
std::optional<DType> dtype_from_int(int value);

}  // namespace pushpull
