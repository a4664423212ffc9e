#include "core/work.h"

#include <utility>

#include "core/work_state.h"

namespace pushpull {

void WorkState::complete(const Result<void>& result) {
  Callback call;
  {
    std::lock_guard lock(mutex);
    if (outcome) return;
    outcome = result;
    finished.store(true, std::memory_order_release);
    call = std::exchange(callback, nullptr);
  }
  changed.notify_all();
  if (call) call(result);
}

Result<void> Work::wait(Deadline deadline) {
  const auto& driver = state_->driver;
  const auto began = driver ? Clock::now() : Clock::time_point();
  if (driver && !state_->finished.load(std::memory_order_acquire)) driver->drive(*state_, deadline);
  std::unique_lock lock(state_->mutex);
  const auto done = [this] { return state_->outcome.has_value(); };
  if (!done()) {
    if (deadline == never()) {
      state_->changed.wait(lock, done);
    } else if (!state_->changed.wait_until(lock, deadline, done)) {
      return fail(ErrorCode::kTimeout, "the call is still under way after the time to wait for it");
    }
    if (driver) {
      lock.unlock();
      driver->slept(Clock::now() - began);
    }
  }
  return *state_->outcome;
}

bool Work::done() const {
  std::lock_guard lock(state_->mutex);
  return state_->outcome.has_value();
}

std::optional<Result<void>> Work::status() const {
  std::lock_guard lock(state_->mutex);
  return state_->outcome;
}

void Work::then(std::function<void(const Result<void>&)> f) {
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->outcome) {
      state_->callback = std::move(f);
      return;
    }
  }
  f(*state_->outcome);
}

}  // namespace pushpull
