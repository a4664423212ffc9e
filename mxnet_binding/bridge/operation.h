// One exchange as an operation of MXNet's engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "mxnet_binding/bridge/array.h"
#include "mxnet_binding/bridge/failure.h"
#include "mxnet_binding/bridge/store.h"

namespace pushpull::bridge {

// The engine owns it from push() on and deletes it when it is over, whether it ever ran or not. One
// that never ran (its input failed, or MXNet shuts down) is withdrawn, so that the other ranks do
// not wait.
class Operation {
 public:
  // The arrays are referenced until the operation ends.
  Operation(std::shared_ptr<BridgedStore> store, int kind, const KeyNames& names,
            const CallOptions& options, ArrayInfo info, ArrayRef in, ArrayRef out);
  ~Operation();
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Takes the call's number, then hands the operation to the engine.
  // `outcome` (may be null) receives the result before push() returns, where the engine runs the
  // operation at once.
  [[nodiscard]] static Result<void> push(std::unique_ptr<Operation> operation,
                                         std::optional<Failure>* outcome);

 private:
  static void run(void* context, void* on_complete, void* operation);
  static void run_with_start(void* context, void* on_start, void* on_complete, void* operation);
  static void done(void* operation, int code, const char* message);

  void begin();
  [[nodiscard]] Result<void> locate();
  [[nodiscard]] int exchange();
  void complete(const Failure* failure);
  void refuse(const Failure& failure);  // withdraw and complete
  void withdraw(const char* reason);
  const char* name() const;
  // `in` and `out` share an engine variable, or are one array.
  bool shares_chunk() const { return !in_ || chunk_of(in_.handle()) == chunk_of(out_.handle()); }

  const std::shared_ptr<BridgedStore> store_;
  const int kind_;
  const KeyNames& names_;
  const CallOptions options_;
  const ArrayInfo info_;
  ArrayRef in_;  // empty: in place
  ArrayRef out_;
  uint64_t call_ = 0;
  bool settled_ = false;  // core has the call, or knows that it will not come
  EngineCallback on_complete_{};
  std::optional<Failure>* outcome_ = nullptr;
  PushPullTensor in_tensor_{};
  PushPullTensor out_tensor_{};
};

}  // namespace pushpull::bridge
