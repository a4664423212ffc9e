// The shared half of a Work; whoever runs the call completes it, once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "core/deadline.h"
#include "core/error.h"

namespace pushpull {

struct WorkState;

// What a thread that waits for a work may do for it in the meantime.
class WorkDriver {
 public:
  virtual ~WorkDriver() = default;
  // Returns when the work is finished, at the deadline, or when nothing has moved for a moment.
  virtual void drive(const WorkState& work, Deadline deadline) = 0;
  // After a wait that drove in vain, or not at all, and slept: how long it took in all.
  virtual void slept(Duration wait) = 0;
};

struct WorkState {
  using Callback = std::function<void(const Result<void>&)>;

  // Sets the outcome, wakes waiters and calls the callback. The first outcome stays.
  void complete(const Result<void>& result);

  std::shared_ptr<WorkDriver> driver;  // may be null
  std::atomic<bool> finished = false;  // `outcome` is there

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<void>> outcome;
  Callback callback;
};

}  // namespace pushpull
