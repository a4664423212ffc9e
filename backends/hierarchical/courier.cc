#include "backends/hierarchical/courier.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace pushpull {

Courier::Courier(std::function<void(const Error&)> failed) : failed_(std::move(failed)) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
    tasks_.push_back(std::move(task));
  }
  ++given_;
  changed_.notify_all();
}

Result<void> Courier::wait(uint64_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= count || error_; });
  if (error_) return fail(*error_);
  return {};
}

void Courier::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ == given_; });
}

void Courier::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    if (!error_) {
      lock.unlock();
      auto ended = task();
      if (!ended) failed_(ended.error());
      lock.lock();
      if (!ended) error_ = ended.error();
    }
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace pushpull
