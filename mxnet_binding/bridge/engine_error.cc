#include "mxnet_binding/bridge/engine_error.h"

#include <condition_variable>
#include <mutex>
#include <stdexcept>

// The engine copies the error it is given by this name; the layout is that of its base.
namespace dmlc {
struct Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};
}  // namespace dmlc

namespace pushpull::bridge {
namespace {

// The list doubles when it is full: with this many errors in it, it has room for as many again.
constexpr size_t kErrors = 1025;

// Operations that fail as soon as they run.
class FailingOperations {
 public:
  explicit FailingOperations(const MxnetLibrary& library) : library_(library) {}

  [[nodiscard]] Result<void> push(NDArrayHandle writes) {
    begin();
    void* function = library_.has_on_start()
                         ? reinterpret_cast<void*>(&FailingOperations::run_with_start)
                         : reinterpret_cast<void*>(&FailingOperations::run);
    if (library_.push_async(function, this, nullptr, &kCpu, nullptr, 0, &writes, 1,
                            &kCpuPrioritized, 0, "pushpull", false) == 0) {
      return {};
    }
    end();
    return fail(PUSHPULL_ABORTED,
                std::string("MXNet's engine did not take an operation: ") + library_.last_error());
  }

  // Returns when the engine has stored the errors of all that were pushed.
  void wait() {
    std::unique_lock lock(mutex_);
    none_left_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  static void run(void*, void* on_complete, void* operations) {
    auto* self = static_cast<FailingOperations*>(operations);
    complete_with_error(self->library_, *static_cast<const EngineCallback*>(on_complete),
                        "never seen");
    self->end();
  }
  static void run_with_start(void* context, void* on_start, void* on_complete, void* operations) {
    started(*static_cast<const EngineCallback*>(on_start));
    run(context, on_complete, operations);
  }

  void begin() {
    std::lock_guard lock(mutex_);
    ++left_;
  }
  void end() {
    std::lock_guard lock(mutex_);
    if (--left_ == 0) none_left_.notify_all();
  }

  const MxnetLibrary& library_;
  std::mutex mutex_;
  std::condition_variable none_left_;
  size_t left_ = 0;
};

}  // namespace

void started(const EngineCallback& on_start) {
  if (on_start.function != nullptr) on_start.function(on_start.engine, on_start.operation, nullptr);
}

void complete_with_error(const MxnetLibrary& library, const EngineCallback& on_complete,
                         const std::string& sentence) {
  const dmlc::Error error("CollectiveError: " + sentence);
  std::lock_guard lock(library.completing_with_error());
  on_complete.function(on_complete.engine, on_complete.operation, &error);
}

Result<void> make_room_for_errors(const MxnetLibrary& library, std::span<NDArrayHandle> scratch) {
  for (size_t errors = 0; errors < kErrors; errors += scratch.size()) {
    FailingOperations operations(library);
    Result<void> pushed;
    for (NDArrayHandle array : scratch) {
      if (pushed) pushed = operations.push(array);
    }
    // Reading an error looks through the list, on any thread: not while the list may move.
    operations.wait();
    if (!pushed) return pushed;
    for (NDArrayHandle array : scratch) library.wait_to_read(array);  // reads the error
  }
  return {};
}

}  // namespace pushpull::bridge
