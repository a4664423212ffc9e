#include "backends/mpi/mpi_backoff.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "core/deadline.h"

namespace pushpull {

namespace {

constexpr int kPolls = 200;   // of the transport, some 20 us
constexpr int kYields = 100;  // free of charge where nobody else wants the processor
constexpr auto kTaken =
    std::chrono::microseconds(50);       // a yield that long means that somebody does
constexpr long kShortestSleep = 20'000;  // ns
constexpr long kLongestSleep = 50'000;
constexpr int kShortSleeps = 50;

// Gives way to whoever is ready to run; whether anybody was.
bool yield() {
  const Deadline before = Clock::now();
  sched_yield();
  return Clock::now() - before > kTaken;
}

}  // namespace

bool MpiBackoff::pause() {
  if (sleeps_ == 0) {
    const int polls = crowded_ ? 0 : kPolls;
    if (++polls_ <= polls) return false;
    // Who yields to a busy process gets the processor back late; who sleeps, when it wakes up.
    if (polls_ <= polls + kYields && !yield()) return false;
    // The default slack of 50 us would more than double a sleep. A property of the thread: set each
    // time a wait comes this far, which costs nothing beside a sleep.
    prctl(PR_SET_TIMERSLACK, 1'000UL);
  }
  sleeps_ = std::min(sleeps_ + 1, kShortSleeps);
  timespec time{};
  time.tv_nsec = kShortestSleep + (kLongestSleep - kShortestSleep) * sleeps_ / kShortSleeps;
  nanosleep(&time, nullptr);
  return true;
}

void MpiBackoff::reset() {
  polls_ = 0;
  sleeps_ = 0;
}

}  // namespace pushpull
