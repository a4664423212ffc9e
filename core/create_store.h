// The store of a process that somebody started: who it is comes from its surroundings.
#pragma once

#include <memory>

#include "core/config.h"
#include "core/kvstore.h"
#include "core/registry.h"
#include "core/settings.h"

namespace pushpull {

// Settles rank and size (find_identity()), then KVStore::create(). The registry has to outlive the store.
[[nodiscard]] Result<std::unique_ptr<KVStore>> create_store(Settings settings, Registry& registry,
                                                            const Config::Environment& environment);

}  // namespace pushpull
