// Which rank this process is: asked of the backend (MPI knows), the settings and the starter.
#pragma once

#include "core/backend.h"
#include "core/config.h"
#include "core/registry.h"
#include "core/settings.h"

namespace pushpull {

// Contradictions (PUSHPULL_RANK=1 under mpirun's rank 0, 1 of 1 where the environment says 4) are
// InvalidArgument errors that name both sides. Nothing said anywhere: 0 of 1.
// PUSHPULL_RANK=auto draws one from the store (redis, file). Fills in
// settings->rank and size, and local_rank where the starter tells it.
[[nodiscard]] Result<Identity> find_identity(const Config::Environment& environment, Registry& registry,
                                             Settings* settings);

}  // namespace pushpull
