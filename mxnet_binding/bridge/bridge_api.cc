#include "mxnet_binding/bridge/bridge_api.h"

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "mxnet_binding/bridge/array.h"
#include "mxnet_binding/bridge/engine_error.h"
#include "mxnet_binding/bridge/group_wait.h"
#include "mxnet_binding/bridge/mxnet_library.h"
#include "mxnet_binding/bridge/store.h"

using pushpull::bridge::BridgedStore;
using pushpull::bridge::CallOptions;
using pushpull::bridge::Failure;
using pushpull::bridge::GroupWait;
using pushpull::bridge::MxnetLibrary;
using pushpull::bridge::Result;

struct PushPullBridge {
  std::shared_ptr<const MxnetLibrary> library;
};
struct PushPullBridgedStore {
  std::shared_ptr<BridgedStore> store;
};
struct PushPullBridgedWait {
  std::unique_ptr<GroupWait> wait;
};

namespace {

// What pushpull_bridge_last_error() returns: per thread, as in core's C API.
Failure& last_failure() {
  thread_local Failure failure;
  return failure;
}

int report(Result<void> result) {
  if (result) return 0;
  last_failure() = std::move(result.error());
  return last_failure().code;
}

int give(Result<std::unique_ptr<GroupWait>> begun, PushPullBridgedWait** wait) {
  if (!begun) return report(pushpull::bridge::fail(begun.error()));
  *wait = new PushPullBridgedWait{std::move(*begun)};
  return 0;
}

static_assert(pushpull::bridge::kNotOnHost == PUSHPULL_BRIDGE_NOT_ON_HOST);

}  // namespace

const char* pushpull_bridge_last_error(void) { return last_failure().message.c_str(); }

int pushpull_bridge_last_error_restartable(void) { return last_failure().restartable ? 1 : 0; }

int pushpull_bridge_open(const char* libmxnet, PushPullBridge** bridge) {
  auto library = MxnetLibrary::open(libmxnet);
  if (!library) return report(pushpull::bridge::fail(library.error()));
  *bridge = new PushPullBridge{std::move(*library)};
  return 0;
}

int pushpull_bridge_verify(PushPullBridge* bridge, void* base, void* view, void* other) {
  return report(pushpull::bridge::verify_chunks(*bridge->library, base, view, other));
}

int pushpull_bridge_make_room(PushPullBridge* bridge, void** scratch, int num_scratch) {
  if (num_scratch < 1) return 0;
  return report(pushpull::bridge::make_room_for_errors(
      *bridge->library, {scratch, static_cast<size_t>(num_scratch)}));
}

void pushpull_bridge_free(PushPullBridge* bridge) { delete bridge; }

int pushpull_bridge_attach(PushPullBridge* bridge, PushPullStore* store, int immediate,
                           PushPullBridgedStore** bridged) {
  *bridged = new PushPullBridgedStore{
      std::make_shared<BridgedStore>(bridge->library, store, immediate != 0)};
  return 0;
}

void pushpull_bridge_detach(PushPullBridgedStore* bridged) { delete bridged; }

int pushpull_bridge_pushpull(PushPullBridgedStore* bridged, const char* key, void* in, void* out,
                             int priority, double prescale, double postscale) {
  CallOptions options;
  options.priority = priority;
  options.prescale = prescale;
  options.postscale = postscale;
  return report(bridged->store->pushpull(key, in, out, options));
}

int pushpull_bridge_broadcast(PushPullBridgedStore* bridged, const char* key, void* value,
                              void* out, int root, int priority) {
  CallOptions options;
  options.priority = priority;
  options.root = root;
  return report(bridged->store->broadcast(key, value, out, options));
}

int pushpull_bridge_check(PushPullBridgedStore* bridged, const char* key, void* array) {
  return report(bridged->store->check(key, array));
}

int pushpull_bridge_idle(PushPullBridgedStore* bridged, int milliseconds) {
  return bridged->store->idle(std::chrono::milliseconds(milliseconds)) ? 1 : 0;
}

int pushpull_bridge_handed_over_errors(PushPullBridgedStore* bridged) {
  return bridged->store->handed_over_errors() ? 1 : 0;
}

int pushpull_bridge_barrier(PushPullStore* store, PushPullBridgedWait** wait) {
  return give(GroupWait::barrier(store), wait);
}

int pushpull_bridge_join(PushPullStore* store, PushPullBridgedWait** wait) {
  return give(GroupWait::join(store), wait);
}

int pushpull_bridge_group_wait_last(PushPullBridgedWait* wait) { return wait->wait->last(); }

int pushpull_bridge_group_wait(PushPullBridgedWait* wait, int milliseconds) {
  auto result = wait->wait->wait(std::chrono::milliseconds(milliseconds));
  return result ? report(std::move(*result)) : PUSHPULL_BRIDGE_PENDING;
}

void pushpull_bridge_group_wait_free(PushPullBridgedWait* wait) { delete wait; }

void pushpull_bridge_exit_with(int code) {
  const auto replace = [](int status, void* argument) {
    if (status != 0 && status != 1) return;
    std::fflush(nullptr);
    _exit(static_cast<int>(reinterpret_cast<intptr_t>(argument)));
  };
  on_exit(replace, reinterpret_cast<void*>(static_cast<intptr_t>(code)));
}
