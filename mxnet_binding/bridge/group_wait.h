// Waiting for the whole group, at a barrier or until all ranks have joined, in slices, so that the caller
// can look at signals in between.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "mxnet_binding/bridge/failure.h"

namespace pushpull::bridge {

class GroupWait {
 public:
  // Takes part in the next barrier of the group. May be destroyed before it is done.
  [[nodiscard]] static Result<std::unique_ptr<GroupWait>> barrier(PushPullStore* store);
  // The same for the group's next join.
  [[nodiscard]] static Result<std::unique_ptr<GroupWait>> join(PushPullStore* store);

  // nullopt: not done within `timeout`.
  [[nodiscard]] std::optional<Result<void>> wait(std::chrono::milliseconds timeout);
  // Of a join that is done: the rank that joined last.
  int last() const;

 private:
  struct State;
  using Start = int (*)(PushPullStore*, State&, PushPullDone, void* context);
  static Result<std::unique_ptr<GroupWait>> start(PushPullStore* store, Start start);
  explicit GroupWait(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  // shared with core until it is done
};

}  // namespace pushpull::bridge
