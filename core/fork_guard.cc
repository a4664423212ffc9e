#include "core/fork_guard.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace pushpull {
namespace {

struct Observers {
  std::mutex mutex;
  std::vector<ForkObserver*> list;
};

// Never destroyed: a fork may come while static objects are going.
Observers& observers() {
  static auto* all = new Observers;
  return *all;
}

// The lock is held across the fork, so that the child finds the list whole.
void prepare() { observers().mutex.lock(); }
void in_parent() { observers().mutex.unlock(); }
void in_child() {
  for (ForkObserver* o : observers().list) o->after_fork_in_child();
  observers().list.clear();
  observers().mutex.unlock();
}

}  // namespace

void ForkObserver::watch() {
  static const int installed = pthread_atfork(prepare, in_parent, in_child);
  (void)installed;
  std::lock_guard lock(observers().mutex);
  observers().list.push_back(this);
}

void ForkObserver::unwatch() {
  std::lock_guard lock(observers().mutex);
  std::erase(observers().list, this);
}

}  // namespace pushpull
