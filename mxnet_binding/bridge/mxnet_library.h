// MXNet's C functions, found at run time in the library that Python has already loaded. The bridge
// is compiled without MXNet: one build serves every supported version.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "mxnet_binding/bridge/failure.h"

namespace pushpull::bridge {

using NDArrayHandle = void*;

// What the engine hands to an asynchronous function, as every MXNet from 1.6 to 2.0 lays it out.
// Calling it more than once, or never, breaks the engine.
struct EngineCallback {
  void (*function)(void* engine, void* operation, const void* error);
  void* engine;
  void* operation;
};

// Where our operations run: MXNet's Context of the CPU; and the kind of operation (FnProperty) for
// which the engine honours priorities.
struct EngineContext {
  int32_t device_type;
  int32_t device_id;
};
inline constexpr EngineContext kCpu{1, 0};
inline constexpr int kCpuPrioritized = 3;

// A place in which MXNet's C++ code may construct one of its arrays. Larger than any of them.
// Not trivially copyable, so that a function returning it takes a hidden pointer as MXNet's does.
struct ForeignArray {
  ForeignArray(const ForeignArray&) = delete;
  ForeignArray& operator=(const ForeignArray&) = delete;
  ~ForeignArray() {}
  alignas(16) unsigned char bytes[2048];
};

class MxnetLibrary {
 public:
  // `path` as Python knows it. Unsupported: a version that the bridge was not written for.
  [[nodiscard]] static Result<std::shared_ptr<const MxnetLibrary>> open(const char* path);

  int version() const { return version_; }  // 10901 is 1.9.1
  // From 2.0 on, asynchronous functions get an on_start callback before on_complete.
  bool has_on_start() const { return version_ >= 20000; }
  const char* last_error() const { return get_last_error_(); }

  int (*shallow_copy)(NDArrayHandle, NDArrayHandle*) = nullptr;
  int (*free_array)(NDArrayHandle) = nullptr;
  int (*storage_type)(NDArrayHandle, int*) = nullptr;
  int (*dtype)(NDArrayHandle, int*) = nullptr;
  int (*context)(NDArrayHandle, int* device_type, int* device_id) = nullptr;
  int (*shape)(NDArrayHandle, int* ndim, const int64_t** dims) = nullptr;
  int (*to_dlpack)(NDArrayHandle, void** managed) = nullptr;
  int (*free_dlpack)(void* managed) = nullptr;
  int (*wait_to_read)(NDArrayHandle) = nullptr;
  int (*push_async)(void* function, void* param, void (*deleter)(void*), const void* context,
                    NDArrayHandle* reads, int num_reads, NDArrayHandle* writes, int num_writes,
                    const void* property, int priority, const char* name, bool wait) = nullptr;

  // The engine keeps a list of errors that it changes without a lock, so only one thread at a time
  // may complete an operation with an error. See engine_error.h.
  std::mutex& completing_with_error() const { return completing_with_error_; }

  // Convert an array from oneDNN's blocked layout to the default one. Not part of MXNet's C API, so
  // null where a build does not export them (one without oneDNN has no such layout either).
  void (*reorder_chunk)(void* chunk) = nullptr;
  ForeignArray (*reordered_array)(const void* array) = nullptr;
  void (*destroy_array)(void* array) = nullptr;

 private:
  MxnetLibrary() = default;

  int version_ = 0;
  mutable std::mutex completing_with_error_;
  const char* (*get_last_error_)() = nullptr;
};

}  // namespace pushpull::bridge
