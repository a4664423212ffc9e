// A module that uses a function nobody has, as one built for another version may.
#include "core/backend.h"

extern "C" __attribute__((visibility("default"))) void pushpull_function_of_another_version();

namespace {

std::unique_ptr<pushpull::StoreFactory> create() {
  pushpull_function_of_another_version();
  return nullptr;
}

}  // namespace

PUSHPULL_MODULE_EXPORT const pushpull::StoreModule* pushpull_store_v1() {
  static constexpr pushpull::StoreModule kModule{pushpull::kModuleAbi, &create};
  return &kModule;
}
