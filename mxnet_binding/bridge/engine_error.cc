#include "mxnet_binding/bridge/engine_error.h"

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

constexpr size_t kRoom = 1024;

void fail_at_once(void*, void* on_complete, void* library) {
  complete_with_error(*static_cast<const MxnetLibrary*>(library),
                      *static_cast<const EngineCallback*>(on_complete), "never seen");
}

void fail_at_once_with_start(void* context, void* on_start, void* on_complete, void* library) {
  started(*static_cast<const EngineCallback*>(on_start));
  fail_at_once(context, on_complete, library);
}

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
  for (size_t errors = 0; errors < kRoom; errors += scratch.size()) {
    for (NDArrayHandle& array : scratch) {
      void* function = library.has_on_start() ? reinterpret_cast<void*>(&fail_at_once_with_start)
                                              : reinterpret_cast<void*>(&fail_at_once);
      if (library.push_async(function, const_cast<MxnetLibrary*>(&library), nullptr, &kCpu, nullptr,
                             0, &array, 1, &kCpuPrioritized, 0, "pushpull", false) != 0) {
        return fail(PUSHPULL_ABORTED, std::string("MXNet's engine did not take an operation: ") +
                                          library.last_error());
      }
    }
    for (NDArrayHandle array : scratch) library.wait_to_read(array);  // reads the error
  }
  return {};
}

}  // namespace pushpull::bridge
