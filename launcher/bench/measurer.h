// Runs the cases of a bench: all ranks together, each for its part.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/error.h"
#include "launcher/bench/options.h"

namespace pushpull::launcher {

struct BenchGroup {
  int rank = 0;
  int size = 1;
  int hosts = 1;
};

// What all ranks found, the same on every rank where not said otherwise.
struct Measurement {
  std::vector<std::vector<double>> seconds;  // [iteration][rank]
  std::vector<double> cpu_seconds;           // per iteration, by rank
  double memcpy_seconds = 0;                 // of the same bytes, by one thread; on rank 0 only
  std::vector<int> wrong_ranks;              // that found a wrong value
};

// Called on rank 0 from time to time, with how many iterations of the case are done.
using BenchProgress = std::function<void(size_t done)>;

class Measurer {
 public:
  virtual ~Measurer() = default;
  virtual const BenchGroup& group() const = 0;
  // The case is one of the options' and comes next in their order, on all ranks. A wrong value is
  // no error, but is told on stderr by each rank that found one.
  [[nodiscard]] virtual Result<Measurement> measure(const BenchCase& bench_case,
                                                    const BenchProgress& progress) = 0;
  // After the last case.
  [[nodiscard]] virtual Result<void> finish() = 0;
};

// Through core's KVStore in this process.
[[nodiscard]] Result<std::unique_ptr<Measurer>> make_store_measurer(const BenchOptions& options,
                                                                    const Config& config);
// Through MXNet in a child process, a Python that has pushpull and mxnet. `folder`: of the pushpull
// command, where that Python is looked for first. `environment`: for the child. Main thread only.
[[nodiscard]] Result<std::unique_ptr<Measurer>> make_mxnet_measurer(
    const BenchOptions& options, const std::string& folder,
    const std::vector<std::string>& environment);

}  // namespace pushpull::launcher
