#include "core/create_store.h"

#include "core/identity.h"

namespace pushpull {

Result<std::unique_ptr<KVStore>> create_store(Settings settings, Registry& registry,
                                              const Config::Environment& environment) {
  const auto identity = find_identity(environment, registry, &settings);
  if (!identity) return fail(identity.error());
  return KVStore::create(settings, registry);
}

}  // namespace pushpull
