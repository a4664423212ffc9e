// The only place that reads the process environment.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend.h"
#include "core/config.h"
#include "core/error.h"

namespace pushpull {

// The real environment, for Config::load.
std::optional<std::string> environment_variable(std::string_view name);
// All of it, "NAME=value" each, as it is: names may hold dots or be exported shell functions.
std::vector<std::string> whole_environment();

// Rank, size and local rank from PUSHPULL_RANK/PUSHPULL_SIZE, else from what started the process:
// Open MPI (OMPI_COMM_WORLD_*), PMI/PMIx, Slurm (SLURM_PROCID/SLURM_NTASKS), a Kubernetes Indexed
// Job (JOB_COMPLETION_INDEX with PUSHPULL_SIZE), torchrun style (RANK/WORLD_SIZE/LOCAL_RANK).
// PUSHPULL_RANK=auto leaves the rank open.
struct StarterInfo {
  std::optional<int> rank;
  std::optional<int> size;
  std::optional<int> local_rank;
  std::string source;  // "Open MPI (OMPI_COMM_WORLD_RANK)", "environment PUSHPULL_RANK"
};
[[nodiscard]] Result<StarterInfo> detect_starter(const Config::Environment& environment);
// The variables that detect_starter() and check_not_alone() look at, without PUSHPULL_* ones: who
// starts workers by other means must not hand them down.
const std::vector<std::string_view>& starter_variables();

// A process started as one of N never runs as 1 of 1: an error naming every setting around that
// says more processes than `identity` does (SLURM_NTASKS=4, PMI_SIZE=4, OMPI_COMM_WORLD_SIZE=4, …).
[[nodiscard]] Result<void> check_not_alone(const Config::Environment& environment,
                                           const Identity& identity);

}  // namespace pushpull
