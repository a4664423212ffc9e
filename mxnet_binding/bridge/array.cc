#include "mxnet_binding/bridge/array.h"

#include <exception>
#include <string>
#include <utility>

namespace pushpull::bridge {
namespace {

constexpr int kDefaultStorage = 0;
constexpr int kRowSparseStorage = 1;
constexpr int kGpu = 2;  // every other device type is host memory

struct DTypeRow {
  int mxnet;
  int core;  // -1: not exchanged
  const char* name;
  size_t size;
};
constexpr DTypeRow kDTypes[] = {
    {0, 0, "float32", 4}, {1, 1, "float64", 8},   {2, 2, "float16", 2},
    {3, 3, "uint8", 1},   {4, 4, "int32", 4},     {5, 5, "int8", 1},
    {6, 6, "int64", 8},   {12, 7, "bfloat16", 2}, {7, -1, "bool", 1},
};

const DTypeRow* row_of_mxnet(int dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.mxnet == dtype) return &row;
  }
  return nullptr;
}
const DTypeRow& row_of_core(int dtype) {
  for (const DTypeRow& row : kDTypes) {
    if (row.core == dtype) return row;
  }
  return kDTypes[0];
}

Failure mxnet_failure(const MxnetLibrary& library, const char* what) {
  return Failure{PUSHPULL_INVALID_ARGUMENT,
                 std::string("MXNet could not ") + what + ": " + library.last_error(), false};
}

Result<void> check_storage(const MxnetLibrary& library, NDArrayHandle handle) {
  int storage = kDefaultStorage;
  if (library.storage_type(handle, &storage) != 0) {
    return fail(mxnet_failure(library, "tell an array's storage type"));
  }
  if (storage == kDefaultStorage) return {};
  const std::string name = storage == kRowSparseStorage ? "row_sparse" : "csr";
  return fail(PUSHPULL_UNSUPPORTED,
              "sparse arrays (" + name +
                  ") are not exchanged: use array.tostype('default'), or dense gradients "
                  "(grad_stype='default', Embedding(sparse_grad=False))");
}

Result<int> core_dtype(const MxnetLibrary& library, NDArrayHandle handle) {
  int dtype = -1;
  if (library.dtype(handle, &dtype) != 0) {
    return fail(mxnet_failure(library, "tell an array's dtype"));
  }
  const DTypeRow* row = row_of_mxnet(dtype);
  if (row != nullptr && row->core >= 0) return row->core;
  if (dtype == -1) {
    return fail(PUSHPULL_INVALID_ARGUMENT,
                "the array has no data yet: initialise it before exchanging it");
  }
  const std::string name = row != nullptr ? row->name : "number " + std::to_string(dtype);
  return fail(PUSHPULL_UNSUPPORTED,
              "arrays of dtype " + name +
                  " are not exchanged: use float32, float64, float16, bfloat16, int8, uint8, int32 "
                  "or int64, for example array.astype('uint8')");
}

}  // namespace

size_t ArrayInfo::bytes() const {
  size_t count = row_of_core(dtype).size;
  for (int64_t extent : shape) count *= static_cast<size_t>(extent);
  return count;
}

Result<ArrayInfo> describe(const MxnetLibrary& library, NDArrayHandle handle) {
  if (auto dense = check_storage(library, handle); !dense) return fail(dense.error());
  auto dtype = core_dtype(library, handle);
  if (!dtype) return fail(dtype.error());
  ArrayInfo info;
  info.dtype = *dtype;
  int device_type = 0;
  int device_id = 0;
  int ndim = 0;
  const int64_t* dims = nullptr;
  if (library.context(handle, &device_type, &device_id) != 0 ||
      library.shape(handle, &ndim, &dims) != 0) {
    return fail(mxnet_failure(library, "describe an array"));
  }
  info.on_host = device_type != kGpu;
  for (int i = 0; i < ndim; ++i) {
    if (dims[i] < 0) ndim = -1;
  }
  if (ndim < 0) {
    return fail(PUSHPULL_INVALID_ARGUMENT,
                "the array's shape is not known yet: run one forward pass, or give the shape");
  }
  info.shape.assign(dims, dims + ndim);
  return info;
}

std::string to_string(const ArrayInfo& info) {
  std::string text = std::string(row_of_core(info.dtype).name) + " (";
  for (size_t i = 0; i < info.shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(info.shape[i]);
  }
  return text + (info.shape.size() == 1 ? ",)" : ")");
}

Result<void> verify_chunks(const MxnetLibrary& library, NDArrayHandle base, NDArrayHandle view,
                           NDArrayHandle other) {
  auto copy = ArrayRef::copy_of(library, base);
  if (!copy) return fail(copy.error());
  if (chunk_of(base) == chunk_of(view) && chunk_of(base) == chunk_of(copy->handle()) &&
      chunk_of(base) != chunk_of(other)) {
    return {};
  }
  return fail(PUSHPULL_UNSUPPORTED,
              "this build of MXNet (version number " + std::to_string(library.version()) +
                  ") lays out its arrays in a way that pushpull does not know; use the official "
                  "package of MXNet 1.9.1");
}

// An array that MXNet constructed in our memory.
struct ArrayRef::Reordered {
  Reordered(const MxnetLibrary& mxnet, NDArrayHandle source)
      : library(mxnet), array(mxnet.reordered_array(source)) {}
  ~Reordered() { library.destroy_array(array.bytes); }
  Reordered(const Reordered&) = delete;
  Reordered& operator=(const Reordered&) = delete;

  const MxnetLibrary& library;
  ForeignArray array;
};

ArrayRef::ArrayRef() = default;

ArrayRef::ArrayRef(const MxnetLibrary* library, NDArrayHandle handle)
    : library_(library), handle_(handle) {}

Result<ArrayRef> ArrayRef::copy_of(const MxnetLibrary& library, NDArrayHandle handle) {
  NDArrayHandle copy = nullptr;
  if (library.shallow_copy(handle, &copy) != 0) {
    return fail(mxnet_failure(library, "reference an array"));
  }
  return ArrayRef(&library, copy);
}

ArrayRef::ArrayRef(ArrayRef&& other) noexcept { *this = std::move(other); }

ArrayRef& ArrayRef::operator=(ArrayRef&& other) noexcept {
  std::swap(library_, other.library_);
  std::swap(handle_, other.handle_);
  std::swap(reordered_, other.reordered_);
  return *this;
}

ArrayRef::~ArrayRef() {
  if (handle_ != nullptr) library_->free_array(handle_);
}

void ArrayRef::leak() {
  handle_ = nullptr;
  reordered_.release();
}

Result<void*> ArrayRef::pointer(NDArrayHandle handle) const {
  void* managed = nullptr;
  if (library_->to_dlpack(handle, &managed) != 0) {
    return fail(mxnet_failure(*library_, "give access to an array"));
  }
  // A DLManagedTensor begins with the data pointer. The memory itself is held by the reference.
  void* data = *static_cast<void**>(managed);
  library_->free_dlpack(managed);
  return data;
}

Result<void*> ArrayRef::data(bool exclusive) {
  auto direct = pointer(handle_);
  if (direct) return direct;
  // The one reason for which MXNet refuses here is oneDNN's layout. MXNDArrayGetData would convert
  // it too, but by an engine operation that would wait for the one we are in.
  return reordered(exclusive, direct.error());
}

Result<void*> ArrayRef::reordered(bool exclusive, const Failure& failure) {
  try {
    if (exclusive && library_->reorder_chunk != nullptr) {
      library_->reorder_chunk(*static_cast<void**>(handle_));
      return pointer(handle_);
    }
    if (!exclusive && library_->reordered_array != nullptr && library_->destroy_array != nullptr) {
      reordered_ = std::make_unique<Reordered>(*library_, handle_);
      return pointer(reordered_->array.bytes);
    }
  } catch (const std::exception& error) {
    return fail(
        PUSHPULL_INVALID_ARGUMENT,
        std::string("MXNet could not bring an array into its default layout: ") + error.what());
  }
  return fail(failure);
}

}  // namespace pushpull::bridge
