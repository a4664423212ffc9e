#include "backends/hierarchical/step_board.h"

namespace pushpull {

void StepBoard::reset(const std::vector<size_t>& open_parts) {
  const std::lock_guard lock(mutex_);
  open_parts_ = open_parts;
  steps_ = open_parts.size();
  if (steps_ > room_) {
    room_ = 2 * steps_;
    gathered_ = std::make_unique<std::atomic<uint32_t>[]>(room_);
  }
  for (size_t i = 0; i < steps_; ++i) gathered_[i] = stopped_ ? 1 : 0;
}

void StepBoard::gathered(size_t step) {
  gathered_[step].store(1, std::memory_order_release);
  gathered_[step].notify_all();
}

void StepBoard::part_arrived(size_t step) {
  {
    const std::lock_guard lock(mutex_);
    if (--open_parts_[step] != 0) return;
  }
  changed_.notify_one();
}

bool StepBoard::await_arrived(size_t step) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopped_ || open_parts_[step] == 0; });
  return open_parts_[step] == 0;
}

void StepBoard::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (size_t i = 0; i < steps_; ++i) gathered(i);
  changed_.notify_all();
}

}  // namespace pushpull
