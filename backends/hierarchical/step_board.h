// How far the steps of one call have come, between the thread that sums locally and the one that
// exchanges between hosts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace pushpull {

class StepBoard {
 public:
  // For a call of that many steps; open_parts[i]: parts of step i that are to arrive. Nobody may
  // use it meanwhile. Stays stopped.
  void reset(const std::vector<size_t>& open_parts);

  // Not 0 once the step's sum of this host is there, or the board was stopped; for Part::ready.
  const std::atomic<uint32_t>* gathered_flag(size_t step) const { return &gathered_[step]; }
  void gathered(size_t step);

  void part_arrived(size_t step);
  // Until all parts of the step have arrived; false where the board was stopped before.
  bool await_arrived(size_t step);

  // Wakes everybody, now and later. Any thread.
  void stop();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::vector<size_t> open_parts_;
  size_t steps_ = 0;
  size_t room_ = 0;
  std::unique_ptr<std::atomic<uint32_t>[]> gathered_;
};

}  // namespace pushpull
