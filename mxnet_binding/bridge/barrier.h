// Waiting for a barrier in slices, so that the caller can look at signals in between.
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

  // nullopt: not done within `timeout`.
  [[nodiscard]] std::optional<Result<void>> wait(std::chrono::milliseconds timeout);

 private:
  struct State;
  explicit Barrier(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  // shared with core until the barrier is done
};

}  // namespace pushpull::bridge
