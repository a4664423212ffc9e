// What runs in place of a worker under mpirun, and starts the worker as its child.
//
// mpirun would tear lines of output, pass on the environment only in part, end all others on the
// first failure at once, and tell exit codes in prose. The shim instead connects to the launcher
// (an abstract Unix socket, so nothing is left behind), gets command and environment from it, sends
// output and exit status back in frames (frames.h), passes signals on, and ends when the launcher
// says so or is gone.
#pragma once

#include <string>

#include "core/config.h"

namespace pushpull::launcher {

// `address`: of the launcher's socket, without the leading zero byte. Returns the exit code.
int run_shim(const std::string& address, const Config::Environment& environment,
             const std::vector<std::string>& whole_environment);

}  // namespace pushpull::launcher
