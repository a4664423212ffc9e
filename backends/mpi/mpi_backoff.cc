#include "backends/mpi/mpi_backoff.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>

namespace pushpull {

namespace {

constexpr int kPolls = 200;   // of the transport, some 20 us
constexpr int kYields = 200;  // free of charge where nobody else wants the processor
constexpr int kCrowdedYields = 20;
constexpr long kShortestSleep = 20'000;  // ns
constexpr long kLongestSleep = 50'000;
constexpr int kShortSleeps = 50;

}  // namespace

bool MpiBackoff::pause() {
  const int polls = crowded_ ? 0 : kPolls;
  const int yields = crowded_ ? kCrowdedYields : kYields;
  ++polls_;
  if (polls_ <= polls) return false;
  if (polls_ <= polls + yields) {
    sched_yield();
    return false;
  }
  // The default slack of 50 us would more than double the sleep. A property of the thread: set each
  // time a wait comes this far, which costs nothing beside a sleep.
  if (polls_ == polls + yields + 1) prctl(PR_SET_TIMERSLACK, 1'000UL);
  const int sleeps = std::min(polls_ - polls - yields, kShortSleeps);
  timespec time{};
  time.tv_nsec = kShortestSleep + (kLongestSleep - kShortestSleep) * sleeps / kShortSleeps;
  nanosleep(&time, nullptr);
  polls_ = std::min(polls_, polls + yields + kShortSleeps);
  return true;
}

}  // namespace pushpull
