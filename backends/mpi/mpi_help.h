// What Open MPI has to say about lost peers, without a wait for mpirun.
#pragma once

namespace pushpull {

// Once MPI is there: Open MPI 4's messages for people go to this process's stderr at once. Its own
// way sends them to mpirun and waits for the answer, inside whatever MPI call found the peer gone;
// mpirun does not answer while it ends a job, so a survivor could not say who died before it was
// ended, too. Does nothing with other MPIs and other versions.
void print_mpi_help_here();

}  // namespace pushpull
