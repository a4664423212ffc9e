// The only place that reads the process environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/backend.h"
#include "core/config.h"
#include "core/error.h"

namespace pushpull {

// The real environment, for Config::load.
std::optional<std::string> environment_variable(std::string_view name);

// Rank, size and local rank from PUSHPULL_RANK/PUSHPULL_SIZE, else from what started the process:
// Open MPI (OMPI_COMM_WORLD_*), PMI/PMIx, Slurm (SLURM_PROCID/SLURM_NTASKS), a Kubernetes Indexed Job
// (JOB_COMPLETION_INDEX with PUSHPULL_SIZE), torchrun style (RANK/WORLD_SIZE/LOCAL_RANK).
struct StarterInfo {
  std::optional<int> rank;
  std::optional<int> size;
  std::optional<int> local_rank;
  std::string source;  // "Open MPI (OMPI_COMM_WORLD_RANK)", "environment PUSHPULL_RANK"
};
[[nodiscard]] Result<StarterInfo> detect_starter(const Config::Environment& environment);

// A process started as one of N never runs as 1 of 1: an error naming every setting around that
// says more processes than `identity` does (SLURM_NTASKS=4, PMI_SIZE=4, OMPI_COMM_WORLD_SIZE=4, …).
[[nodiscard]] Result<void> check_not_alone(const Config::Environment& environment,
                                           const Identity& identity);

}  // namespace pushpull
