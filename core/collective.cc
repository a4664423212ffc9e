#include "core/collective.h"

namespace pushpull {

size_t slice_length(size_t total, int ranks) {
  constexpr size_t kAlign = 16;
  const auto n = static_cast<size_t>(ranks);
  const size_t even = total / n + (total % n != 0);
  return (even + kAlign - 1) / kAlign * kAlign;
}

size_t slice_length(const Part& part, int ranks) {
  return part.slice != 0 ? part.slice : slice_length(part.total, ranks);
}

}  // namespace pushpull
