// What the tcp and the file store ask of keys, values and counters.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"

namespace pushpull {

inline constexpr size_t kMaxKeyBytes = 1024;
inline constexpr size_t kMaxValueBytes = 64u << 10;

inline Result<void> check_key(std::string_view key) {
  if (!key.empty() && key.size() <= kMaxKeyBytes) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("a key of {} bytes is not possible (1 to {})", key.size(), kMaxKeyBytes));
}

inline Result<void> check_value(std::string_view key, std::string_view value) {
  if (value.size() <= kMaxValueBytes) return {};
  Error error(ErrorCode::kInvalidArgument,
              fmt::format("the value of key '{}' has {} bytes, at most {} are possible", key,
                          value.size(), kMaxValueBytes));
  return fail(error.at_key(std::string(key)));
}

// The counter after adding to `current` (absent: 0), or why it is none. Never shows the value.
inline Result<int64_t> add_to_counter(std::string_view key,
                                      const std::optional<std::string>& current, int64_t delta) {
  int64_t value = 0;
  int64_t sum = 0;
  bool is_number = true;
  if (current) {
    const char* end = current->data() + current->size();
    const auto parsed = std::from_chars(current->data(), end, value);
    is_number = parsed.ec == std::errc() && parsed.ptr == end;
  }
  if (is_number && !__builtin_add_overflow(value, delta, &sum)) return sum;
  Error error(ErrorCode::kInvalidArgument,
              fmt::format("key '{}' does not hold a counter that {} can be added to", key, delta));
  return fail(error.at_key(std::string(key)));
}

}  // namespace pushpull
