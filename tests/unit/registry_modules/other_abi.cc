// A module of another version of the interface.
#include "core/backend.h"

namespace {

std::unique_ptr<pushpull::StoreFactory> create() { return nullptr; }

}  // namespace

PUSHPULL_MODULE_EXPORT const pushpull::StoreModule* pushpull_store_v1() {
  static constexpr pushpull::StoreModule kModule{"pushpull-module-0", &create};
  return &kModule;
}
