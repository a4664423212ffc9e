// Ranks that mpirun started find rank 0's coordinator through MPI itself.
#pragma once

#include <memory>
#include <string>

#include "backends/mpi/mpi_process.h"
#include "core/rendezvous.h"

namespace pushpull {

// Needs a process that has been started. Stores of one job are told apart by the order in which
// they are created, which must be the same on every rank.
std::unique_ptr<Rendezvous> make_mpi_rendezvous(MpiProcess& process, std::string job);

}  // namespace pushpull
