#include "backends/hierarchical/courier.h"

#include <pthread.h>

#include <utility>

#include "core/net/signals.h"

namespace pushpull {

Courier::Courier() {
  const BlockSignals blocked;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "pushpull-across");
}

Courier::~Courier() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Courier::give(Task task) {
  {
    const std::lock_guard lock(mutex_);
    task_ = std::move(task);
    busy_ = true;
  }
  changed_.notify_all();
}

Result<void> Courier::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
  return result_;
}

void Courier::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || busy_; });
    if (!busy_) return;
    const Task task = std::move(task_);
    lock.unlock();
    auto result = task();
    lock.lock();
    result_ = std::move(result);
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace pushpull
