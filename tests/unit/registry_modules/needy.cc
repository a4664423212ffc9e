// A module whose library is missing when it is loaded.
#include "core/backend.h"

extern "C" __attribute__((visibility("default"))) int pushpull_absent();

namespace {

std::unique_ptr<pushpull::StoreFactory> create() {
  return pushpull_absent() == 0 ? nullptr : std::unique_ptr<pushpull::StoreFactory>();
}

}  // namespace

PUSHPULL_MODULE_EXPORT const pushpull::StoreModule* pushpull_store_v1() {
  static constexpr pushpull::StoreModule kModule{pushpull::kModuleAbi, &create};
  return &kModule;
}
