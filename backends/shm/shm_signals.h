// Telling other ranks and waiting for them: a short spin, then sleeps on a futex.
//
// All but abort() belong to the data thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/shm/shm_segment.h"
#include "core/deadline.h"
#include "core/error.h"

namespace pushpull {

class Signals {
 public:
  using Counter = Signal RankSignals::*;

  // `names[r]` is for messages. `patience`: how long a rank may be waited for; zero: for ever.
  // `crowded`: ranks share cores, so that a spinning one keeps the awaited one from running.
  Signals(const ShmSegment& segment, int rank, std::vector<std::string> names,
          std::vector<std::string> hosts, Duration patience, bool crowded);

  // This rank's counter becomes `value`.
  void post(Counter counter, uint64_t value);

  // Until the counter of `rank` is at least `value`. False: why() tells the reason.
  bool await(Counter counter, int rank, uint64_t value) {
    Signal& signal = segment_.signals(rank).*counter;
    return signal.value.load(std::memory_order_acquire) >= value || sleep(signal, rank, value);
  }
  bool await_all(Counter counter, uint64_t value) {
    for (int r = 0; r < segment_.ranks(); ++r)
      if (r != rank_ && !await(counter, r, value)) return false;
    return true;
  }

  bool aborted() const { return aborted_.load(std::memory_order_acquire); }
  Error why() const;

  // Any thread.
  void abort(const Error& reason);
  // Whoever still waits for this rank learns that it is gone.
  void leave();

 private:
  bool sleep(Signal& signal, int rank, uint64_t value);
  void note_core();
  void part_from(int rank);
  bool somebody_left(const Signal& signal, int rank, uint64_t value);
  void wake_everybody();

  const ShmSegment& segment_;
  const int rank_;
  const std::vector<std::string> names_;
  const std::vector<std::string> hosts_;
  const Duration patience_;
  const int spins_;
  int core_ = -1;             // that the others know of
  Deadline part_again_ = {};  // not before

  std::atomic<bool> aborted_ = false;
  mutable std::mutex mutex_;
  std::optional<Error> reason_;
};

}  // namespace pushpull
