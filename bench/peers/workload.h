#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace pushpull::bench {

/// One allreduce of a step: `count` floats, summed in place.
struct Call {
  float* data;
  std::size_t count;
};

/// What a program was asked to measure, from its command line:
///
///     --mode tensor    one call per tensor of the model, last layer first, as backward makes them
///     --mode fused     one call on a single buffer with the whole model
///     --mode latency   one blocking call at a time, for each of --sizes
///     --model FILE     the tensors; one line each: elements, name, shape
///     --sizes A,B,...  bytes
///     --iters N        timed steps (--warmup N more before them, untimed)
///     --out DIR        where rank r writes r.json
///     --variant NAME   a program's own choice of algorithm
///
/// Every program of the peers understands exactly these; `harness/measure.py` writes them.
struct Options {
  std::string mode = "tensor";
  std::string model;
  std::vector<std::size_t> sizes;
  int iters = 20;
  int warmup = 5;
  std::string out = ".";
  std::string variant;
};

/// Ends the program with exit code 2 and a sentence where the command line is wrong.
Options parse_options(int argc, char** argv);

/// Elements per tensor, first layer first. Ends the program with exit code 2 if it cannot be read.
std::vector<std::size_t> read_model(const std::string& path);

/// How the library under test does its part. All ranks call both in the same order.
struct Library {
  int rank;
  int size;
  std::function<void()> barrier;
  /// Sums every call over all ranks, in place, and returns when all are complete.
  std::function<void(std::span<const Call>)> allreduce;
};

/// Checks one step's sums against their exact values (exit code 3 where one is wrong), then times
/// every series of `options` and writes the times, one per step, to `<out>/<rank>.json`.
void measure(const Options& options, const Library& library);

/// The one series of a program without ranks, in the same form.
void write_times(const Options& options, const std::string& name, std::size_t bytes,
                 const std::vector<double>& us);

}  // namespace pushpull::bench
