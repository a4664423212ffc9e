#include "mxnet_binding/bridge/mxnet_library.h"

#include <dlfcn.h>

#include <string>

namespace pushpull::bridge {
namespace {

constexpr int kOldest = 10600;  // the first with MXShallowCopyNDArray
constexpr int kTooNew = 20100;  // beyond the 2.0 line nothing was looked at

std::string version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

// Looks up names in one library and remembers the first that was missing.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <class Function>
  void optional(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library_, name));
  }
  template <class Function>
  void required(const char* name, Function* function) {
    optional(name, function);
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

Result<std::shared_ptr<const MxnetLibrary>> MxnetLibrary::open(const char* path) {
  // MXNet never goes away once Python has loaded it, so the handle is not kept.
  void* loaded = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (loaded == nullptr) {
    return fail(PUSHPULL_UNAVAILABLE, std::string("MXNet is not loaded from ") + path +
                                          ": import mxnet before opening a store");
  }
  Symbols symbols(loaded);
  std::shared_ptr<MxnetLibrary> library(new MxnetLibrary);
  int (*get_version)(int*) = nullptr;
  symbols.required("MXGetVersion", &get_version);
  symbols.required("MXGetLastError", &library->get_last_error_);
  if (get_version == nullptr || get_version(&library->version_) != 0) {
    return fail(PUSHPULL_UNSUPPORTED, std::string(path) + " does not tell its MXNet version");
  }
  if (library->version_ < kOldest || library->version_ >= kTooNew) {
    return fail(PUSHPULL_UNSUPPORTED,
                "MXNet " + version_text(library->version_) +
                    " is not supported: pushpull works with MXNet 1.6 to 2.0 (tested: 1.9.1)");
  }
  symbols.required("MXShallowCopyNDArray", &library->shallow_copy);
  symbols.required("MXNDArrayFree", &library->free_array);
  symbols.required("MXNDArrayGetStorageType", &library->storage_type);
  symbols.required("MXNDArrayGetDType", &library->dtype);
  symbols.required("MXNDArrayGetContext", &library->context);
  symbols.required(library->version_ >= 20000 ? "MXNDArrayGetShape64" : "MXNDArrayGetShapeEx64",
                   &library->shape);
  symbols.required("MXNDArrayToDLPack", &library->to_dlpack);
  symbols.required("MXNDArrayCallDLPackDeleter", &library->free_dlpack);
  symbols.required("MXNDArrayWaitToRead", &library->wait_to_read);
  symbols.required("MXEnginePushAsyncND", &library->push_async);
  if (!symbols.missing().empty()) {
    return fail(PUSHPULL_UNSUPPORTED, "MXNet " + version_text(library->version_) + " at " + path +
                                          " lacks the function " + symbols.missing());
  }
  symbols.optional("_ZN5mxnet7NDArray5Chunk15Reorder2DefaultEv", &library->reorder_chunk);
  symbols.optional("_ZNK5mxnet7NDArray15Reorder2DefaultEv", &library->reordered_array);
  symbols.optional("_ZN5mxnet7NDArrayD1Ev", &library->destroy_array);
  return std::shared_ptr<const MxnetLibrary>(std::move(library));
}

}  // namespace pushpull::bridge
