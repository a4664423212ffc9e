// The command lines of what starts workers for us: mpirun, srun, and scripts for sbatch. Pure
// functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "launcher/hosts.h"
#include "launcher/plan.h"

namespace pushpull::launcher {

// What workers on other hosts get of the launcher's environment where nobody says otherwise: what
// programs need to run in the same way. Slurm hands everything on by itself.
inline constexpr std::string_view kForwarded =
    "PATH,LD_LIBRARY_PATH,PYTHON*,VIRTUAL_ENV,CONDA_*,PUSHPULL_*,MXNET_*,OMP_*,GOMP_*,KMP_*,MKL_*,"
    "OPENBLAS_*,CUDA_*,LANG,LC_*,TZ";

struct StarterRequest {
  std::vector<std::string> shim;         // the command for each worker
  std::vector<std::string> environment;  // of the starter itself
  std::string token;
  int workers = 1;
  std::vector<HostSlots> hosts;  // empty: this host, or what surrounds us
  bool is_root = false;
  std::string forward;  // launch.forward
  bool mpi = false;     // workers are MPI processes
  std::vector<std::string> further;
};
Process mpirun(const StarterRequest& request);
Process srun(const StarterRequest& request);

struct ScriptRequest {
  std::string folder;          // of the pushpull command
  std::string working_folder;  // from which a configuration file's name is meant
  std::string config_file;     // as given by -c
  int workers = 1;
};
// A script for sbatch that runs the same job inside its allocation. `further` become #SBATCH lines.
std::string sbatch_script(const Config& config, const ScriptRequest& request,
                          const std::vector<std::string>& further,
                          const std::vector<std::string>& command);

// Words as a POSIX shell separates them: blanks, '…', "…", \\. InvalidArgument where a quote is
// not closed.
[[nodiscard]] Result<std::vector<std::string>> split_words(std::string_view text);

}  // namespace pushpull::launcher
