// A module that makes nothing.
#include "core/backend.h"

namespace {

std::unique_ptr<pushpull::StoreFactory> create() { return nullptr; }

}  // namespace

PUSHPULL_MODULE_EXPORT const pushpull::StoreModule* pushpull_store_v1() {
  static constexpr pushpull::StoreModule kModule{pushpull::kModuleAbi, &create};
  return &kModule;
}
