// One event loop with its thread, for the sockets and timers of one store's control plane.
#pragma once

#include <functional>
#include <memory>

#include "core/deadline.h"

namespace asio {
class io_context;
}

namespace pushpull {

// Starts with all signals blocked. stop() (or the destructor) ends and joins the thread; what was
// posted and not yet run is dropped.
class IoThread {
 public:
  explicit IoThread(const char* name);  // at most 15 characters, as shown by ps
  ~IoThread();

  asio::io_context& context();
  // Runs `f` on the loop's thread. Any thread.
  void post(std::function<void()> f);
  // Runs `f` on the loop's thread every `period`, until stop().
  void every(Duration period, std::function<void()> f);
  // Runs `f` on the loop's thread once, after `delay`.
  void after(Duration delay, std::function<void()> f);
  // Must not be called on the loop's own thread.
  void stop();
  // In the child of a fork, where the thread does not exist: lets go without joining.
  void abandon();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pushpull
