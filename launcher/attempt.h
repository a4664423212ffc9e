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
  // `tagged`: Plan::tagged; `again`: the job was started before, and its logs stay.
  [[nodiscard]] static Result<Attempt> prepare(const Config& config, const std::string& config_file,
                                               const std::vector<std::string>& command,
                                               bool tagged = true, bool again = false);
  const Plan& plan() const { return plan_; }

 private:
  Attempt(ReservedPort rendezvous, ReservedPort redis)
      : rendezvous_(std::move(rendezvous)), redis_(std::move(redis)) {}

  ReservedPort rendezvous_;
  ReservedPort redis_;
  Plan plan_;
};

}  // namespace pushpull::launcher
