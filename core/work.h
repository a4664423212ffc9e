// The result of a call that goes on in the background.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/deadline.h"
#include "core/error.h"

namespace pushpull {

struct WorkState;

// Move-only handle. The caller's buffers (`ins`, `outs` of the call) must stay valid until the work is
// done; the handle itself may be dropped before, the call goes on. Thread-safe.
class Work {
 public:
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&&) noexcept = default;

  // Blocks until done (the group's own limits end it) or the deadline, which is a Timeout error of
  // this wait only: the work goes on.
  [[nodiscard]] Result<void> wait(Deadline deadline = never());
  bool done() const;
  // nullopt while it goes on.
  std::optional<Result<void>> status() const;
  // Calls `f` once with the outcome: on the thread that completes the work, without locks held, or
  // at once on this thread where it is done already. At most one `then` per work.
  void then(std::function<void(const Result<void>&)> f);

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace pushpull
