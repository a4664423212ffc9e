// A thread that runs one task after the other, so that something else can go on meanwhile.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "core/error.h"

namespace pushpull {

// Used by one thread. After a task that failed no other is run.
class Courier {
 public:
  using Task = std::function<Result<void>()>;

  // `failed` is called by the courier's thread, at once.
  explicit Courier(std::function<void(const Error&)> failed);
  // Runs what is left.
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  void give(Task task);
  // Until the `count`-th task since the beginning has run; the error of the one that failed.
  [[nodiscard]] Result<void> wait(uint64_t count);
  // Until nothing is left to do, failed or not.
  void wait_idle();
  uint64_t given() const { return given_; }

 private:
  void run();

  const std::function<void(const Error&)> failed_;
  uint64_t given_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  uint64_t done_ = 0;
  std::optional<Error> error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace pushpull
