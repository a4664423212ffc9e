// Where the settings say that ranks find each other, and the store behind it.
#pragma once

#include <memory>
#include <string>

#include "core/net/endpoint.h"
#include "core/registry.h"
#include "core/settings.h"
#include "core/store.h"

namespace pushpull {

// The module behind a backend's name: gloo-redis is gloo that found its ranks in another way.
std::string module_of(const std::string& backend);

// How to open the settings' store; the URL is the backend's default where there is none. The caller
// sets host_it, and time_to_live where it wants another. InvalidArgument where gloo-redis has a URL
// of something else than a Redis.
[[nodiscard]] Result<StoreOptions> rendezvous_options(const Settings& settings);
[[nodiscard]] Result<std::unique_ptr<Store>> open_store(const StoreOptions& options, Registry& registry,
                                                        Deadline deadline);

// The kind of store that a URL asks for: "tcp", "file", "redis" (also of rediss://).
std::string store_kind(const std::string& url);
// The host that a rendezvous URL points to; empty for files.
Endpoint rendezvous_host(const std::string& url);

}  // namespace pushpull
