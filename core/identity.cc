#include "core/identity.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/environment.h"
#include "core/store.h"

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
  const std::string& url = settings.rendezvous;
  const std::string scheme = url.substr(0, std::min(url.find("://"), url.size()));
  if (settings.size < 1) {
    return fail(ErrorCode::kInvalidArgument,
                "PUSHPULL_RANK=auto needs to know of how many ranks; set PUSHPULL_SIZE");
  }
  if (scheme != "redis" && scheme != "rediss" && scheme != "file") {
    return fail(ErrorCode::kInvalidArgument,
                "PUSHPULL_RANK=auto needs a store that is there before the ranks are; set "
                "PUSHPULL_RENDEZVOUS to redis://host:port/db or file:///folder, or number the ranks");
  }
  auto factory = registry.store(scheme == "file" ? "file" : "redis");
  if (!factory) return fail(factory.error());
  StoreOptions options;
  options.url = url;
  options.job = settings.job;
  options.secret = settings.secret;
  options.user = settings.redis_user;
  options.password = settings.redis_password;
  options.interface = settings.interface;
  const Deadline deadline = deadline_in(settings.rendezvous_timeout);
  auto store = (*factory)->open(options, deadline);
  if (!store) return fail(store.error());
  auto ticket = (*store)->add(fmt::format("pushpull:{}:tickets", settings.job), 1, deadline);
  if (!ticket) return fail(ticket.error());
  return static_cast<int>((*ticket - 1) % settings.size);
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
    // An Indexed Job tells the rank only; the size comes with PUSHPULL_SIZE.
    if (settings->rank < 0) settings->rank = starter->rank.value_or(-1);
    if (settings->size < 0) settings->size = starter->size.value_or(-1);
    if (settings->rank < 0 && environment("PUSHPULL_RANK") == "auto") {
      const auto drawn = draw_rank(*settings, registry);
      if (!drawn) return fail(drawn.error());
      settings->rank = *drawn;
    }
    identity = of_settings(*settings);
  }
  if (!identity) return identity;
  if (auto alone = check_not_alone(environment, *identity); !alone) return fail(alone.error());
  settings->rank = identity->rank;
  settings->size = identity->size;
  return identity;
}

}  // namespace pushpull
