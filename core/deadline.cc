#include "core/deadline.h"

#include <algorithm>

namespace pushpull {

int milliseconds_left(Deadline deadline, int cap) {
  const auto now = Clock::now();
  if (deadline <= now) return 0;
  if (deadline == never()) return cap;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<long long>(left, cap));
}

}  // namespace pushpull
