// Carries a plan out: starts, watches, prints, ends, and tells what happened.
#pragma once

#include "launcher/plan.h"

namespace pushpull::launcher {

// Runs the job to its end and returns the exit code for the command:
//   the first failing worker's own (128 + signal where a signal ended it); 124 after the plan's
//   timeout; 128 + signal where a signal to the launcher ended the job (75 if a worker asked for a
//   restart by it, 0 if all workers ended well); 126 and 127 where a worker's program could not be
//   run; else 0.
//
// Workers, the starter and Redis are children of this process; none of them, nor what they left
// behind, lives on when it returns. `alive`: a descriptor that becomes readable when the process
// that watches over this one has died (warden.h); everything is then killed at once. Main thread
// only.
int run_job(const Plan& plan, int alive);

}  // namespace pushpull::launcher
