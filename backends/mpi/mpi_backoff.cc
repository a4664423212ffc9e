#include "backends/mpi/mpi_backoff.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <chrono>

#include "core/deadline.h"

namespace pushpull {

namespace {

// By the clock: a poll takes 0.1 us with shared memory, 2 us with sockets.
constexpr auto kSpin = std::chrono::microseconds(20);
// Yielding is free where nobody else wants the processor; one that took as long as kTaken says that
// somebody does.
constexpr auto kYield = std::chrono::microseconds(200);
constexpr auto kTaken = std::chrono::microseconds(50);
constexpr auto kSlow = std::chrono::microseconds(400);  // so long, and the next sleeps at once
constexpr auto kShortestSleep = std::chrono::microseconds(20);
constexpr auto kShortestSleepWhenSlow = std::chrono::microseconds(60);
// 12 KB at 1 Gbit/s, 125 KB at 10: less than is under way (bytes_under_way), so no link runs dry.
constexpr auto kLongestSleep = std::chrono::microseconds(100);
constexpr int kShareOfWait = 4;  // what comes is noticed late by a quarter of the time it took

}  // namespace

bool MpiBackoff::pause() {
  const Deadline now = Clock::now();
  if (!waiting_) {
    waiting_ = true;
    since_ = now;
    polls_until_ = crowded_ || slow_ ? now : now + kSpin;
    yields_until_ = slow_ ? now : polls_until_ + kYield;
  }
  if (now < polls_until_) return false;
  if (now < yields_until_) {
    sched_yield();
    if (Clock::now() - now <= kTaken) return false;
    // Who yields to a busy process gets the processor back late; who sleeps, when it wakes up.
    taken_ = true;
    yields_until_ = now;
  }
  // The default slack of 50 us would more than double a sleep. A property of the thread: set each
  // time, which costs nothing beside a sleep.
  prctl(PR_SET_TIMERSLACK, 1'000UL);
  const auto share = std::chrono::nanoseconds(now - since_) / kShareOfWait;
  const std::chrono::nanoseconds shortest = slow_ ? kShortestSleepWhenSlow : kShortestSleep;
  timespec time{};
  time.tv_nsec = std::clamp<std::chrono::nanoseconds>(share, shortest, kLongestSleep).count();
  nanosleep(&time, nullptr);
  return true;
}

void MpiBackoff::reset() {
  if (waiting_) slow_ = taken_ || Clock::now() - since_ > kSlow;
  waiting_ = false;
  taken_ = false;
}

}  // namespace pushpull
