// What happens to stores when the process forks.
//
// pthread_atfork takes no argument, so this is the one list that the process keeps. In the child each
// registered object is told that it lives on without its threads.
#pragma once

namespace pushpull {

class ForkObserver {
 public:
  virtual void after_fork_in_child() = 0;

 protected:
  // Registration lasts from the end of construction (call watch()) to unwatch().
  ~ForkObserver() = default;
  void watch();
  void unwatch();
};

}  // namespace pushpull
