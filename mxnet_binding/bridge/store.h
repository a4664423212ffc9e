// A KVStore whose calls are operations of MXNet's engine.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "mxnet_binding/bridge/array.h"
#include "mxnet_binding/bridge/failure.h"
#include "mxnet_binding/bridge/mxnet_library.h"

namespace pushpull::bridge {

// The names under which one key is known: to core, and to MXNet's profiler.
struct KeyNames {
  std::string key;
  std::string pushpull;
  std::string broadcast;
};

struct CallOptions {
  int priority = 0;  // larger first
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;  // of a broadcast
};

// Thread-safe. Shared with the operations that the engine still holds.
class BridgedStore : public std::enable_shared_from_this<BridgedStore> {
 public:
  // `store` is borrowed; it may be freed once idle() said true after the last call. `immediate`:
  // the engine runs an operation while it is pushed (NaiveEngine), where an error must be returned
  // at once because that engine forgets it.
  BridgedStore(std::shared_ptr<const MxnetLibrary> library, PushPullStore* store, bool immediate);

  // Start an exchange that reads `in` and writes `out` (the same handle: in place), and return at
  // once; the engine runs it when the arrays are ready. Fail with kNotOnHost unless both are in
  // host memory. An error that comes later is raised where `out` is read. Errors of the group are
  // returned by every later call too.
  [[nodiscard]] Result<void> pushpull(const char* key, NDArrayHandle in, NDArrayHandle out,
                                      const CallOptions& options);
  [[nodiscard]] Result<void> broadcast(const char* key, NDArrayHandle value, NDArrayHandle out,
                                       const CallOptions& options);

  // Whether the array could be exchanged, as far as it alone decides.
  [[nodiscard]] Result<void> check(const char* key, NDArrayHandle array) const;

  // Waits until no operation of this store is left in the engine.
  bool idle(std::chrono::milliseconds timeout);
  // Whether an error was ever handed to the engine: it may still hold it.
  bool handed_over_errors() const;

  // For operations.
  const MxnetLibrary& library() const { return *library_; }
  PushPullStore* core() const { return store_; }
  bool immediate() const { return immediate_; }
  void operation_begins();
  void operation_ends();
  void error_handed_over();

 private:
  [[nodiscard]] Result<void> start(int kind, const char* key, NDArrayHandle in, NDArrayHandle out,
                                   const CallOptions& options);
  [[nodiscard]] Result<ArrayInfo> inspect(const char* key, NDArrayHandle array) const;
  const KeyNames& names_of(const char* key);  // under order_

  const std::shared_ptr<const MxnetLibrary> library_;
  PushPullStore* const store_;
  const bool immediate_;

  // A call's number and its place in the engine are taken in one step: with two threads on one key
  // they could end up in opposite orders on two ranks.
  std::mutex order_;
  std::map<std::string, std::unique_ptr<KeyNames>, std::less<>> names_;

  mutable std::mutex state_;
  std::condition_variable idle_;
  int operations_ = 0;
  bool handed_over_errors_ = false;
};

}  // namespace pushpull::bridge
