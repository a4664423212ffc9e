// Waiting for a barrier, or for all ranks to join, in slices, so that the caller can look at signals in between.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "mxnet_binding/bridge/failure.h"

namespace pushpull::bridge {

class Barrier {
 public:
  // Takes part in the next barrier of the group. May be destroyed before it is done.
  [[nodiscard]] static Result<std::unique_ptr<Barrier>> begin(PushPullStore* store);
  // The same for the group's next join.
  [[nodiscard]] static Result<std::unique_ptr<Barrier>> begin_join(PushPullStore* store);

  // nullopt: not done within `timeout`.
  [[nodiscard]] std::optional<Result<void>> wait(std::chrono::milliseconds timeout);
  // Of a join that is done: the rank that joined last.
  int last() const;

 private:
  struct State;
  using Start = int (*)(PushPullStore*, State&, PushPullDone, void* context);
  static Result<std::unique_ptr<Barrier>> start(PushPullStore* store, Start start);
  explicit Barrier(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  // shared with core until the barrier is done
};

}  // namespace pushpull::bridge
