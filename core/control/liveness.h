// Who was heard of lately.
#pragma once

#include <optional>
#include <vector>

#include "core/deadline.h"

namespace pushpull {

class Liveness {
 public:
  // A timeout of 0: nobody ever counts as silent.
  Liveness(int size, Duration timeout) : timeout_(timeout), ranks_(static_cast<size_t>(size)) {}

  // From now on silence counts. Rank 0 is never watched: the coordinator lives in its process.
  void start(Clock::time_point now);
  // Something happens: notices when this process itself was away (stopped, suspended), and for how
  // long. What the others sent meanwhile is still unread then: that time is not held against them.
  Duration awake(Clock::time_point now);
  void heard(int rank, Clock::time_point now) { ranks_[static_cast<size_t>(rank)].last = now; }
  // This rank has left: its silence is fine.
  void excuse(int rank) { ranks_[static_cast<size_t>(rank)].watched = false; }

  // The rank that has been silent for the timeout, the longest first.
  std::optional<int> silent(Clock::time_point now);
  // No rank becomes silent before.
  Clock::time_point next_check() const { return next_check_; }
  Clock::time_point last_heard(int rank) const { return ranks_[static_cast<size_t>(rank)].last; }

 private:
  struct Rank {
    Clock::time_point last{};
    bool watched = false;
  };

  Duration timeout_;
  std::vector<Rank> ranks_;
  std::optional<Clock::time_point> awake_;
  Clock::time_point next_check_ = Clock::time_point::max();
};

}  // namespace pushpull
