// Groups over MPI for tests: this process is one rank of the world that mpirun started.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "core/group.h"
#include "core/net/endpoint.h"

namespace pushpull::testing {

// MPI's own collective calls, without taking the processor from the ranks that they wait for.
inline void wait_for(MPI_Request request) {
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0) usleep(100);
  }
}

inline void world_barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  wait_for(request);
}

// All ranks of MPI's world, as the control plane would describe them; `run` tells groups apart. All
// ranks call it together.
inline Group world_group(const std::string& run) {
  Group group;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &group.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<int64_t> pids(static_cast<size_t>(size));
  const int64_t pid = getpid();
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(&pid, 1, MPI_INT64_T, pids.data(), 1, MPI_INT64_T, MPI_COMM_WORLD, &request);
  wait_for(request);
  group.job = "test";
  group.run = run;
  for (int rank = 0; rank < size; ++rank) {
    Member member;
    member.rank = rank;
    member.host = host_name();  // tests run on one host
    member.pid = pids[static_cast<size_t>(rank)];
    group.members.push_back(member);
  }
  return group;
}

}  // namespace pushpull::testing
