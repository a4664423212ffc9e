// Every wait has an end. Times are from the steady clock.
#pragma once

#include <chrono>

namespace pushpull {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using Duration = Clock::duration;

inline Deadline deadline_in(Duration d) { return Clock::now() + d; }
inline Deadline never() { return Deadline::max(); }
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
// Milliseconds left, rounded up; 0 when passed; at most `cap`. For poll, epoll_wait and the like.
int milliseconds_left(Deadline deadline, int cap = 60'000);

}  // namespace pushpull
