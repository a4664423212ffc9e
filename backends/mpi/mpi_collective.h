// `exchange: mpi`: sums made by the MPI library itself, for networks that reduce on their own.
//
// The library chooses how it sums, so bits may differ between ranks' numbers, sizes and libraries.
// Tensors pass through buffers of ours, where small ones share a call: like any MPI request a
// collective one cannot be cancelled, so buffers that are under way at an abort are leaked on
// purpose.
#pragma once

#include <memory>

#include "backends/mpi/mpi_process.h"
#include "core/collective.h"
#include "core/group.h"
#include "core/settings.h"

namespace pushpull {

// Everything but allreduce is left to `exchange`. The group must have all ranks of the process's
// world in their order, and all of them take part in making it.
[[nodiscard]] Result<std::unique_ptr<Collective>> make_mpi_collective(
    MpiProcess& process, std::unique_ptr<Collective> exchange, const Group& group,
    const Settings& settings, Deadline deadline);

}  // namespace pushpull
