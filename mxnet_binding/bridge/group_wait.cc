#include "mxnet_binding/bridge/group_wait.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace pushpull::bridge {

struct GroupWait::State {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<Result<void>> result;
  int last = -1;
};

Result<std::unique_ptr<GroupWait>> GroupWait::barrier(PushPullStore* store) {
  return start(store, [](PushPullStore* s, State&, PushPullDone done, void* context) {
    return pushpull_barrier(s, done, context);
  });
}

Result<std::unique_ptr<GroupWait>> GroupWait::join(PushPullStore* store) {
  return start(store, [](PushPullStore* s, State& state, PushPullDone done, void* context) {
    return pushpull_join(s, &state.last, done, context);
  });
}

Result<std::unique_ptr<GroupWait>> GroupWait::start(PushPullStore* store, Start start) {
  auto state = std::make_shared<State>();
  auto held_by_core = std::make_unique<std::shared_ptr<State>>(state);
  const auto on_done = [](void* context, int code, const char* message) {
    std::unique_ptr<std::shared_ptr<State>> held(static_cast<std::shared_ptr<State>*>(context));
    State& reached = **held;
    std::lock_guard lock(reached.mutex);
    reached.result = code == 0 ? Result<void>() : Result<void>(fail(code, message));
    reached.done.notify_all();
  };
  const int code = start(store, *state, on_done, held_by_core.get());
  if (code != 0) return fail(core_failure(code));
  held_by_core.release();
  return std::unique_ptr<GroupWait>(new GroupWait(std::move(state)));
}

std::optional<Result<void>> GroupWait::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  state_->done.wait_for(lock, timeout, [this] { return state_->result.has_value(); });
  return state_->result;
}

int GroupWait::last() const {
  std::lock_guard lock(state_->mutex);
  return state_->last;
}

}  // namespace pushpull::bridge
