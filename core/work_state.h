// The shared half of a Work; whoever runs the call completes it, once.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "core/error.h"

namespace pushpull {

struct WorkState {
  using Callback = std::function<void(const Result<void>&)>;

  // Sets the outcome, wakes waiters and calls the callback. The first outcome stays.
  void complete(const Result<void>& result);

  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<void>> outcome;
  Callback callback;
};

}  // namespace pushpull
