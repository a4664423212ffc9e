// What a backend module offers. See backends/README.md for how to add one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/collective.h"
#include "core/deadline.h"
#include "core/error.h"
#include "core/group.h"
#include "core/rendezvous.h"
#include "core/settings.h"
#include "core/store.h"

namespace pushpull {

// Which process of the job this is.
struct Identity {
  int rank = 0;
  int size = 1;
};

// What a backend that joins two others takes: both are connected. Either is null where this rank has
// no part in it.
struct Stages {
  std::unique_ptr<Collective> local;   // among the ranks of this host
  std::unique_ptr<Collective> across;  // among the ranks that have this one's local rank
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;

  // For backends whose starter knows it (MPI): rank and size. nullopt: core finds it in the
  // environment. May initialise the library underneath; called once, on the thread that creates the store.
  [[nodiscard]] virtual Result<std::optional<Identity>> identity() = 0;

  // For backends that exchange addresses themselves (MPI). nullptr: core uses a Store.
  [[nodiscard]] virtual Result<std::unique_ptr<Rendezvous>> rendezvous(const std::string& job) = 0;

  // Whether connect() needs Group::mesh.
  virtual bool uses_mesh() const = 0;

  // Connects this rank with all others of the group; all ranks call it at about the same time.
  [[nodiscard]] virtual Result<std::unique_ptr<Collective>> connect(const Group& group,
                                                                    const Settings& settings,
                                                                    Deadline deadline) = 0;
};

// --- the C side of a module -------------------------------------------------------------------
// A module libpushpull_backend_<name>.so exports the function pushpull_backend_v1, a module
// libpushpull_store_<name>.so the function pushpull_store_v1:
//
//   PUSHPULL_MODULE_EXPORT const pushpull::StoreModule* pushpull_store_v1() {
//     static constexpr pushpull::StoreModule kModule{pushpull::kModuleAbi, &create};
//     return &kModule;
//   }
//
// Neither the function nor create() throws.

// Changes with every change of the classes that cross the border.
inline constexpr char kModuleAbi[] = "pushpull-module-4";

struct BackendModule {
  const char* abi;                                   // kModuleAbi as the module was compiled
  std::unique_ptr<Backend> (*create)();
};
struct StoreModule {
  const char* abi;
  std::unique_ptr<StoreFactory> (*create)();
};
using BackendModuleFunction = const BackendModule* (*)();
using StoreModuleFunction = const StoreModule* (*)();

}  // namespace pushpull

#define PUSHPULL_MODULE_EXPORT extern "C" __attribute__((visibility("default")))
