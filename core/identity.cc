#include "core/identity.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/config.h"
#include "core/environment.h"
#include "core/rendezvous_store.h"
#include "core/text.h"

namespace pushpull {
namespace {

// What is shipped needs this to be built.
std::string_view package_of(std::string_view backend) {
  if (backend == "gloo") return "libgloo-dev";
  return backend == "mpi" ? "libopenmpi-dev" : "";
}

Error unknown_backend(const std::string& name, const Registry& registry) {
  std::vector<std::string> known = registry.backend_names();
  if (std::find(known.begin(), known.end(), "gloo") != known.end()) known.emplace_back("gloo-redis");
  std::sort(known.begin(), known.end());
  const std::string near = nearest_name(name, known);
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("unknown backend {}; set MXNET_KVSTORE_BACKEND to one of {}{}", in_quotes(name),
                           fmt::join(known, ", "), near.empty() ? "" : "; did you mean '" + near + "'?"));
}

Result<Backend*> chosen_backend(const std::string& name, Registry& registry) {
  const std::string module = module_of(name);
  if (is_internal_backend(module)) return fail(unknown_backend(name, registry));
  auto backend = registry.backend(module);
  if (backend || backend.error().code() != ErrorCode::kInvalidArgument) return backend;
  if (package_of(module).empty()) return fail(unknown_backend(name, registry));
  return fail(ErrorCode::kUnavailable,
              fmt::format("{}; pushpull was built without it, or its file was removed: install {} and build it "
                          "again",
                          backend.error().message(), package_of(module)));
}

Result<void> check_agreement(const Backend& backend, std::string_view what, int says, int other,
                             std::string_view source) {
  if (other < 0 || other == says) return {};
  if (backend.name() != "mpi")
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("backend {} says {} {}, but {} says {}; take another backend, or leave "
                            "PUSHPULL_RANK and PUSHPULL_SIZE unset",
                            backend.name(), what, says, source, other));
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("MPI says {} {}, but {} says {}; start the processes with mpirun (or srun with a "
                          "matching PMI) and leave PUSHPULL_RANK and PUSHPULL_SIZE unset",
                          what, says, source, other));
}

Result<Identity> of_backend(const Backend& backend, const Identity& known, const Settings& settings) {
  if (auto r = check_agreement(backend, "rank", known.rank, settings.rank, "PUSHPULL_RANK"); !r)
    return fail(r.error());
  if (auto r = check_agreement(backend, "size", known.size, settings.size, "PUSHPULL_SIZE"); !r)
    return fail(r.error());
  return known;
}

Result<void> check_size(int configured, const StarterInfo& starter) {
  if (configured < 0 || !starter.size || *starter.size == configured) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the configuration says {} workers, but {} says {}; start as many as configured, "
                          "or leave `workers` out",
                          configured, starter.source, *starter.size));
}

Result<Identity> of_settings(const Settings& settings) {
  Identity identity;
  if (settings.rank < 0 && settings.size < 0) return identity;
  if (settings.rank < 0 || settings.size < 0)
    return fail(ErrorCode::kInvalidArgument,
                settings.rank < 0
                    ? fmt::format("the group has {} ranks, but nothing says which one this is; set "
                                  "PUSHPULL_RANK",
                                  settings.size)
                    : fmt::format("this is rank {}, but nothing says of how many; set PUSHPULL_SIZE",
                                  settings.rank));
  if (settings.size < 1 || settings.rank >= settings.size)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} does not exist in a group of {}; PUSHPULL_RANK counts from 0 to "
                            "PUSHPULL_SIZE - 1",
                            settings.rank, settings.size));
  return Identity{settings.rank, settings.size};
}

// PUSHPULL_RANK=auto: the store hands ranks out. Any `size` tickets in a row are the ranks from 0 to
// size - 1, also after a start that ended half-way.
Result<int> draw_rank(const Settings& settings, Registry& registry) {
  if (settings.size < 1) {
    return fail(ErrorCode::kInvalidArgument,
                "PUSHPULL_RANK=auto needs to know of how many ranks; set PUSHPULL_SIZE");
  }
  const auto options = rendezvous_options(settings);
  if (!options) return fail(options.error());
  const std::string kind = store_kind(options->url);
  if (kind != "redis" && kind != "file") {
    return fail(ErrorCode::kInvalidArgument,
                "PUSHPULL_RANK=auto needs a store that is there before the ranks are; set "
                "PUSHPULL_RENDEZVOUS to redis://host:port/db or file:///folder, or number the ranks");
  }
  const Deadline deadline = deadline_in(settings.rendezvous_timeout);
  auto store = open_store(*options, registry, deadline);
  if (!store) return fail(store.error());
  auto ticket = (*store)->add(fmt::format("pushpull:{}:tickets", settings.job), 1, deadline);
  if (!ticket) return fail(ticket.error());
  return static_cast<int>((*ticket - 1) % settings.size);
}

}  // namespace

Result<Identity> find_identity(const Config::Environment& environment, Registry& registry,
                               Settings* settings) {
  auto backend = chosen_backend(settings->backend, registry);
  if (!backend) return fail(backend.error());
  auto known = (*backend)->identity();
  if (!known) return fail(known.error());
  auto starter = detect_starter(environment);
  if (!starter) return fail(starter.error());
  if (settings->local_rank < 0 && starter->local_rank) settings->local_rank = *starter->local_rank;

  Result<Identity> identity;
  if (*known) {
    identity = of_backend(**backend, **known, *settings);
  } else {
    // A starter may know the rank only: a Kubernetes Job tells its pods no more.
    if (settings->rank < 0 && starter->rank) {
      if (auto r = check_size(settings->size, *starter); !r) return fail(r.error());
      settings->rank = *starter->rank;
      if (settings->size < 0) settings->size = starter->size.value_or(-1);
    }
    if (settings->rank < 0 && environment("PUSHPULL_RANK") == "auto") {
      if (settings->size < 0) settings->size = starter->size.value_or(-1);
      const auto drawn = draw_rank(*settings, registry);
      if (!drawn) return fail(drawn.error());
      settings->rank = *drawn;
    }
    if (settings->rank < 0 && settings->size < 0) settings->size = starter->size.value_or(-1);
    identity = of_settings(*settings);
  }
  if (!identity) return identity;
  if (auto alone = check_not_alone(environment, *identity); !alone) return fail(alone.error());
  settings->rank = identity->rank;
  settings->size = identity->size;
  return identity;
}

}  // namespace pushpull
