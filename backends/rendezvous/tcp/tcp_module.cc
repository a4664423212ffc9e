// The module's door: see core/backend.h.
#include <memory>

#include "backends/rendezvous/tcp/tcp_store.h"
#include "core/backend.h"

namespace {

std::unique_ptr<pushpull::StoreFactory> create() {
  return std::make_unique<pushpull::tcp_store::TcpStoreFactory>();
}

}  // namespace

PUSHPULL_MODULE_EXPORT const pushpull::StoreModule* pushpull_store_v1() {
  static constexpr pushpull::StoreModule kModule{pushpull::kModuleAbi, &create};
  return &kModule;
}
