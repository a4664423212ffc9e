#include "core/identity.h"

#include <fmt/format.h>

#include "core/environment.h"

namespace pushpull {
namespace {

Result<void> check_agreement(std::string_view what, int backend_says, int other, std::string_view source) {
  if (other < 0 || other == backend_says) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("MPI says {} {}, but {} says {}; start the processes with mpirun (or srun with a "
                          "matching PMI) and leave PUSHPULL_RANK and PUSHPULL_SIZE unset",
                          what, backend_says, source, other));
}

Result<Identity> of_backend(const Identity& known, const Settings& settings) {
  if (auto r = check_agreement("rank", known.rank, settings.rank, "PUSHPULL_RANK"); !r)
    return fail(r.error());
  if (auto r = check_agreement("size", known.size, settings.size, "PUSHPULL_SIZE"); !r)
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

}  // namespace

Result<Identity> find_identity(const Config::Environment& environment, Registry& registry,
                               Settings* settings) {
  const std::string module = settings->backend == "gloo-redis" ? "gloo" : settings->backend;
  auto backend = registry.backend(module);
  if (!backend) return fail(backend.error());
  auto known = (*backend)->identity();
  if (!known) return fail(known.error());
  auto starter = detect_starter(environment);
  if (!starter) return fail(starter.error());
  if (settings->local_rank < 0 && starter->local_rank) settings->local_rank = *starter->local_rank;

  Result<Identity> identity;
  if (*known) {
    identity = of_backend(**known, *settings);
  } else {
    // A starter may know the rank only: a Kubernetes Job tells its pods no more.
    if (settings->rank < 0 && starter->rank) {
      if (auto r = check_size(settings->size, *starter); !r) return fail(r.error());
      settings->rank = *starter->rank;
      if (settings->size < 0) settings->size = starter->size.value_or(-1);
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
