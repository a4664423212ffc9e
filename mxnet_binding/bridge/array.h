// MXNet arrays as the bridge sees them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mxnet_binding/bridge/failure.h"
#include "mxnet_binding/bridge/mxnet_library.h"

namespace pushpull::bridge {

// What can be known of an array without waiting for its value.
struct ArrayInfo {
  int dtype = 0;  // as core/c_api.h numbers them
  bool on_host = true;
  std::vector<int64_t> shape;

  size_t bytes() const;
};

// Fails with a sentence that says what to use instead for sparse arrays, dtypes that are not
// exchanged, and arrays without a shape yet. Must run on the thread that uses the array in Python:
// MXNet reads shapes by thread-local rules.
[[nodiscard]] Result<ArrayInfo> describe(const MxnetLibrary& library, NDArrayHandle handle);

// "float32 (3, 4)"
std::string to_string(const ArrayInfo& info);

// Identity of the memory block, and thereby of the engine variable, behind an array: views of one
// array share it. MXNet's arrays begin with a pointer to it; verify_chunks() checks that they do.
inline const void* chunk_of(NDArrayHandle handle) { return *static_cast<void**>(handle); }

// `view` must be a view of `base`, `other` an independent array of the same shape.
[[nodiscard]] Result<void> verify_chunks(const MxnetLibrary& library, NDArrayHandle base,
                                         NDArrayHandle view, NDArrayHandle other);

// A second reference to an MXNet array, which keeps its memory alive.
class ArrayRef {
 public:
  ArrayRef();
  [[nodiscard]] static Result<ArrayRef> copy_of(const MxnetLibrary& library, NDArrayHandle handle);
  ArrayRef(ArrayRef&& other) noexcept;
  ArrayRef& operator=(ArrayRef&& other) noexcept;
  ~ArrayRef();

  explicit operator bool() const { return handle_ != nullptr; }
  NDArrayHandle handle() const { return handle_; }
  // The array is never freed.
  void leak();

  // Where the elements are. Only inside an engine operation that declared the array; `exclusive` if
  // it declared it as written. Brings the array into the default layout where it is not: in place
  // if exclusive, else in a copy that lives as long as this reference.
  [[nodiscard]] Result<void*> data(bool exclusive);

 private:
  struct Reordered;

  ArrayRef(const MxnetLibrary* library, NDArrayHandle handle);
  [[nodiscard]] Result<void*> pointer(NDArrayHandle handle) const;
  [[nodiscard]] Result<void*> reordered(bool exclusive, const Failure& failure);

  const MxnetLibrary* library_ = nullptr;
  NDArrayHandle handle_ = nullptr;
  std::unique_ptr<Reordered> reordered_;
};

}  // namespace pushpull::bridge
