// What a bench found, as a table for people and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "core/deadline.h"
#include "launcher/bench/measurer.h"
#include "launcher/bench/options.h"

namespace pushpull::launcher {

// One row. An iteration counts with its slowest rank.
struct BenchResult {
  std::string name;
  size_t bytes = 0;
  size_t calls = 0;
  double median_seconds = 0;
  double p95_seconds = 0;
  double algorithm_bandwidth = 0;  // bytes per second: bytes / median
  double bus_bandwidth = 0;  // times 2 (N - 1) / N for sums: comparable between numbers of ranks
  double memcpy_ratio = 0;   // median / memcpy of the same bytes; 0: not known
  double link_share = 0;  // of the least time on the links / median; 0: no links, or no rate given
  int slowest_rank = 0;   // that was the slowest most often
  size_t slowest_count = 0;  // in how many iterations
  std::vector<int> wrong_ranks;
  std::vector<double> iterations;  // seconds of each
  double cpu_seconds = 0;          // per iteration, all ranks together
};

BenchResult evaluate(const BenchOptions& options, const BenchGroup& group,
                     const BenchCase& bench_case, const Measurement& measurement);

// The lines over the first row, and a row; each ends with a newline.
std::string table_head(const BenchOptions& options, const BenchGroup& group,
                       const std::string& backend);
std::string table_row(const BenchOptions& options, const BenchResult& result);

// {"context": {…}, "results": [{…}]}, see docs/bench.md.
std::string results_json(const BenchOptions& options, const BenchGroup& group,
                         const std::string& backend, const std::vector<BenchResult>& results);

// "12.3 us", "4.56 ms"
std::string show_seconds(double seconds);

// A bar on stderr of rank 0, on a terminal, once a bench has taken some seconds.
class BenchBar {
 public:
  // kRelayed: stderr is read by a launcher that shows the last line as it is now on its terminal.
  enum class Place { kNowhere, kTerminal, kRelayed };
  BenchBar(Place place, size_t iterations);
  ~BenchBar();
  BenchBar(const BenchBar&) = delete;
  BenchBar& operator=(const BenchBar&) = delete;

  void update(const std::string& what, size_t done);
  // Makes room for a line of output.
  void clear();

 private:
  Place place_;
  size_t total_;
  Clock::time_point start_ = Clock::now();
  bool shown_ = false;
};

}  // namespace pushpull::launcher
