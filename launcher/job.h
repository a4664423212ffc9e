// Carries a plan out: starts, watches, prints, ends, and tells what happened.
#pragma once

#include <functional>
#include <string_view>

#include "launcher/output.h"
#include "launcher/plan.h"

namespace pushpull::launcher {

struct JobEnd {
  int code = 0;
  bool restart_may_help = false;  // a worker asked for it, or was lost
};

// Gets what a worker writes, in pieces, in place of the launcher's own output; rank -1 is the
// launcher itself and the starter.
using Capture = std::function<void(int rank, Stream stream, std::string_view bytes)>;

// Runs the job to its end; the code is the exit code for the command:
//   the first failing worker's own (128 + signal where a signal ended it); 124 after the plan's
//   timeout; 128 + signal where a signal to the launcher ended the job (75 if a worker asked for a
//   restart by it, 0 if all workers ended well); 126 and 127 where a worker's program could not be
//   run; else 0.
//
// Workers, the starter and Redis are children of this process; none of them, nor what they left
// behind, lives on when it returns. `alive`: a descriptor that becomes readable when the process
// that watches over this one has died (warden.h); everything is then killed at once. Main thread
// only.
JobEnd run_job(const Plan& plan, int alive, const Capture& capture = {});

}  // namespace pushpull::launcher
