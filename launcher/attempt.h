// One start of a job: what surrounds it and what was made up for it, and the plan that follows.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"
#include "launcher/plan.h"
#include "launcher/reserved_port.h"

namespace pushpull::launcher {

// Keeps the ports that its plan names.
class Attempt {
 public:
  [[nodiscard]] static Result<Attempt> prepare(const Config& config, const std::string& config_file,
                                               const std::vector<std::string>& command);
  const Plan& plan() const { return plan_; }

 private:
  Attempt(ReservedPort rendezvous, ReservedPort redis)
      : rendezvous_(std::move(rendezvous)), redis_(std::move(redis)) {}

  ReservedPort rendezvous_;
  ReservedPort redis_;
  Plan plan_;
};

// The absolute name of the pushpull command that runs.
std::string own_command();

// Runs the job, and again while its end says that this helps and launch.restarts allows it; each
// start has a run, ports and secrets of its own. Returns the exit code of the last. `alive`: see
// run_job().
int run_with_restarts(const Config& config, const std::string& config_file,
                      const std::vector<std::string>& command, const Attempt& first, int alive);

}  // namespace pushpull::launcher
