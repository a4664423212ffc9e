// Starting a job from its configuration: what `pushpull run` and `pushpull bench` have in common.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"

namespace pushpull::launcher {

struct StartOptions {
  std::string config_file;  // as given by -c, or empty
  bool dry_run = false;     // print the plan, start nothing
  bool tagged = true;       // lines of workers begin with their rank
};

// Plans the job, says on stderr what is wrong with the plan, or sees the job through, again as often as
// launch.restarts allows while its end says that this helps. Returns the exit code (job.h). Main thread only.
int start_job(const Config& config, const std::vector<std::string>& command,
              const StartOptions& options);

// Absolute: of the running pushpull command.
std::string command_folder();

}  // namespace pushpull::launcher
