// A thread that does one thing at a time, so that another goes on meanwhile.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "core/error.h"

namespace pushpull {

// Used by one thread.
class Courier {
 public:
  using Task = std::function<Result<void>()>;

  Courier();
  // Waits for the task.
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // Starts a task; the one before has been waited for.
  void give(Task task);
  [[nodiscard]] Result<void> wait();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  Task task_;
  bool busy_ = false;
  Result<void> result_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pushpull
