#include "backends/shm/shm_signals.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "core/cores.h"

namespace pushpull {
namespace {

// Some 10 us: longer than a chunk's work differs between ranks, shorter than two trips through the
// kernel.
constexpr int kSpins = 400;
// A wake-up that came between the last look and the sleep is lost for no longer than this.
constexpr timespec kNap = {0, 50'000'000};
// A move costs some 20 us, and where other processes want cores too it may not help for long.
constexpr auto kPartEvery = std::chrono::milliseconds(1);

// The futex is the half of the counter that changes with every step. Not private: other processes.
uint32_t* word(Signal& signal) {
  return reinterpret_cast<uint32_t*>(&signal.value) + (std::endian::native == std::endian::big);
}

void futex_wait(Signal& signal, uint64_t seen) {
  ::syscall(SYS_futex, word(signal), FUTEX_WAIT, static_cast<uint32_t>(seen), &kNap, nullptr, 0);
}

void futex_wake(Signal& signal) {
  ::syscall(SYS_futex, word(signal), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Signals::Signals(const ShmSegment& segment, int rank, std::vector<std::string> names,
                 std::vector<std::string> hosts, Duration patience, bool crowded)
    : segment_(segment),
      rank_(rank),
      names_(std::move(names)),
      hosts_(std::move(hosts)),
      patience_(patience),
      spins_(crowded ? 0 : kSpins) {}

void Signals::post(Counter counter, uint64_t value) {
  Signal& signal = segment_.signals(rank_).*counter;
  // Sequentially consistent with the waiter's increment and second look: one of the two sees the
  // other.
  signal.value.store(value, std::memory_order_seq_cst);
  if (signal.waiters.load(std::memory_order_seq_cst) != 0) futex_wake(signal);
  note_core();
}

void Signals::note_core() {
  const int core = this_core();
  if (core != std::exchange(core_, core))
    segment_.signals(rank_).core.store(core, std::memory_order_relaxed);
}

// Two threads that wake each other may come to share a core, and the kernel then leaves them there
// while others are idle: each finds its cache warm and the other asleep.
void Signals::part_from(int rank) {
  if (segment_.signals(rank).core.load(std::memory_order_relaxed) != this_core()) return;
  const auto now = Clock::now();
  if (now < part_again_) return;
  part_again_ = now + kPartEvery;
  std::vector<int> taken;
  for (int r = 0; r < segment_.ranks(); ++r)
    if (r != rank_) taken.push_back(segment_.signals(r).core.load(std::memory_order_relaxed));
  leave_core(taken);
  note_core();
}

bool Signals::sleep(Signal& signal, int rank, uint64_t value) {
  for (int i = 0; i < spins_; ++i) {
    relax();
    if (signal.value.load(std::memory_order_acquire) >= value) return true;
  }
  if (spins_ != 0) part_from(rank);
  const Deadline deadline = patience_ == Duration::zero() ? never() : deadline_in(patience_);
  for (;;) {
    if (aborted()) return false;
    signal.waiters.fetch_add(1, std::memory_order_seq_cst);
    const uint64_t seen = signal.value.load(std::memory_order_seq_cst);
    if (seen < value) futex_wait(signal, seen);
    signal.waiters.fetch_sub(1, std::memory_order_relaxed);
    if (signal.value.load(std::memory_order_acquire) >= value) return true;
    if (somebody_left(signal, rank, value)) return false;
    if (Clock::now() >= deadline) {
      Error error(
          ErrorCode::kTimeout,
          fmt::format("{} did nothing in shared memory for {} s", names_[static_cast<size_t>(rank)],
                      std::chrono::duration_cast<std::chrono::seconds>(patience_).count()));
      abort(error.at_rank(rank, hosts_[static_cast<size_t>(rank)]));
      return false;
    }
  }
}

// The first rank that was missed is the culprit, not one that closed because of it.
bool Signals::somebody_left(const Signal& signal, int rank, uint64_t value) {
  std::atomic<int32_t>& lost = segment_.header().lost;
  const bool left = segment_.signals(rank).left.load(std::memory_order_acquire) != 0;
  int32_t culprit = lost.load(std::memory_order_acquire);
  if (!left && culprit == 0) return false;
  // It may have made the step before it closed.
  if (signal.value.load(std::memory_order_acquire) >= value) return false;
  if (culprit == 0 && lost.compare_exchange_strong(culprit, rank + 1)) culprit = rank + 1;
  if (culprit < 1 || culprit > segment_.ranks()) culprit = rank + 1;
  const auto index = static_cast<size_t>(culprit - 1);
  Error error(ErrorCode::kPeerLost,
              fmt::format("{} closed the shared memory while others needed it", names_[index]));
  abort(error.at_rank(culprit - 1, hosts_[index]));
  return true;
}

Error Signals::why() const {
  const std::lock_guard lock(mutex_);
  return reason_ ? *reason_ : Error(ErrorCode::kAborted, "the exchange ended");
}

void Signals::abort(const Error& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!reason_) reason_ = reason;
  }
  aborted_.store(true, std::memory_order_release);
  wake_everybody();
}

void Signals::leave() {
  segment_.signals(rank_).left.store(1, std::memory_order_release);
  wake_everybody();
}

void Signals::wake_everybody() {
  for (int r = 0; r < segment_.ranks(); ++r)
    for (Counter counter : {&RankSignals::put, &RankSignals::reduced, &RankSignals::done})
      futex_wake(segment_.signals(r).*counter);
}

}  // namespace pushpull
