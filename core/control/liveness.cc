#include "core/control/liveness.h"

#include <algorithm>

namespace pushpull {

void Liveness::start(Clock::time_point now) {
  for (size_t r = 0; r < ranks_.size(); ++r) ranks_[r] = {now, r != 0};
  if (timeout_ > Duration::zero()) next_check_ = now + timeout_;
}

Duration Liveness::awake(Clock::time_point now) {
  if (timeout_ <= Duration::zero()) return {};
  const Duration gap = awake_ ? now - *awake_ : Duration::zero();
  awake_ = now;
  if (gap <= timeout_ / 2) return {};
  for (Rank& r : ranks_) r.last += gap;
  return gap;
}

std::optional<int> Liveness::silent(Clock::time_point now) {
  if (now < next_check_) return std::nullopt;
  std::optional<size_t> longest;
  for (size_t r = 0; r < ranks_.size(); ++r)
    if (ranks_[r].watched && (!longest || ranks_[r].last < ranks_[*longest].last)) longest = r;
  if (!longest) {
    next_check_ = Clock::time_point::max();
    return std::nullopt;
  }
  next_check_ = ranks_[*longest].last + timeout_;
  if (now < next_check_) return std::nullopt;
  return static_cast<int>(*longest);
}

}  // namespace pushpull
