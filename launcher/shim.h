// What runs in place of a worker under mpirun or srun, and starts the worker as its child.
//
// Starters would tear lines of output, pass on the environment only in part, end all others on the
// first failure at once, and tell exit codes in prose. The shim instead connects to the launcher
// (with the hello of core/net, and a token that the starter hands it in its environment), gets
// command and environment from it, sends output and exit status back in frames (frames.h), passes
// signals on, and ends when the launcher says so or is gone.
#pragma once

#include <string>
#include <vector>

#include "core/config.h"

namespace pushpull::launcher {

// As words behind `pushpull shim`.
struct ShimAddress {
  std::string endpoint;   // of the launcher
  std::string run;        // Plan::run
  std::string interface;  // as configured
  std::string ports;

  std::vector<std::string> words() const { return {endpoint, run, interface, ports}; }
  [[nodiscard]] static Result<ShimAddress> from_words(const std::vector<std::string>& words);
};

// Returns the exit code.
int run_shim(const std::vector<std::string>& words, const Config::Environment& environment,
             const std::vector<std::string>& whole_environment);

}  // namespace pushpull::launcher
