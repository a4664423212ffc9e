#include "launcher/bench/report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <numeric>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/version.h"

namespace pushpull::launcher {
namespace {

// How many times a sum's bytes cross each link at least, as parts (ranks or hosts) exchange them.
double crossings(BenchOperation operation, int parts) {
  if (parts < 2) return 0;
  return operation == BenchOperation::kBroadcast ? 1.0 : 2.0 * (parts - 1) / parts;
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double p95_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, values.size() * 95 / 100)];
}

std::string plural(size_t number, const std::string& word) {
  return fmt::format("{} {}{}", number, word, number == 1 ? "" : "s");
}

std::string_view name_of(BenchOperation operation) {
  return operation == BenchOperation::kBroadcast ? "broadcast" : "pushpull";
}

std::string mode_of(const BenchOptions& options) {
  if (options.synchronous) return "latency";
  return options.fused ? "fused" : "per tensor";
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "unknown";
}

nlohmann::ordered_json context(const BenchOptions& options, const BenchGroup& group,
                               const std::vector<BenchResult>& results) {
  utsname system{};
  uname(&system);
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  for (const BenchResult& result : results) {
    cases.push_back({{"name", result.name},
                     {"calls", result.calls},
                     {"cpu_s", result.cpu_seconds},
                     {"slowest_rank", result.slowest_rank},
                     {"slowest_count", result.slowest_count},
                     {"wrong_ranks", result.wrong_ranks},
                     {"link_share", result.link_share},
                     {"iterations_s", result.iterations}});
  }
  return {{"pushpull", kVersion},
          {"date", fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)))},
          {"cpu", processor()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"kernel", system.release},
          {"level", options.through_mxnet ? "mxnet" : "store"},
          {"op", name_of(options.operation)},
          {"mode", mode_of(options)},
          {"iters", options.iterations},
          {"warmup", options.warmup},
          {"ranks", group.size},
          {"hosts", group.hosts},
          {"link_rate_bps", options.link_bits_per_second},
          {"cases", std::move(cases)}};
}

}  // namespace

BenchResult evaluate(const BenchOptions& options, const BenchGroup& group,
                     const BenchCase& bench_case, const Measurement& measurement) {
  BenchResult result;
  std::vector<size_t> slowest(static_cast<size_t>(group.size));
  for (const auto& by_rank : measurement.seconds) {
    const auto longest = std::max_element(by_rank.begin(), by_rank.end());
    ++slowest[static_cast<size_t>(longest - by_rank.begin())];
    result.iterations.push_back(*longest);
  }
  const auto most = std::max_element(slowest.begin(), slowest.end());
  const auto bytes = static_cast<double>(bench_case.elements() * size_of(options.dtype));
  result.name = bench_case.name;
  result.bytes = bench_case.elements() * size_of(options.dtype);
  result.calls = bench_case.counts.size();
  result.median_seconds = std::max(median_of(result.iterations), 1e-9);
  result.p95_seconds = p95_of(result.iterations);
  result.algorithm_bandwidth = bytes / result.median_seconds;
  result.bus_bandwidth = result.algorithm_bandwidth * crossings(options.operation, group.size);
  if (measurement.memcpy_seconds > 0) {
    result.memcpy_ratio = result.median_seconds / measurement.memcpy_seconds;
  }
  if (options.link_bits_per_second > 0) {
    const double least =
        crossings(options.operation, group.hosts) * bytes * 8 / options.link_bits_per_second;
    result.link_share = least / result.median_seconds;
  }
  result.slowest_rank = static_cast<int>(most - slowest.begin());
  result.slowest_count = *most;
  result.wrong_ranks = measurement.wrong_ranks;
  result.cpu_seconds =
      std::accumulate(measurement.cpu_seconds.begin(), measurement.cpu_seconds.end(), 0.0);
  return result;
}

std::string show_seconds(double seconds) {
  const auto [factor, unit] = seconds < 1e-3  ? std::pair(1e6, "us")
                              : seconds < 1.0 ? std::pair(1e3, "ms")
                                              : std::pair(1.0, "s");
  const double value = seconds * factor;
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit);
}

std::string table_head(const BenchOptions& options, const BenchGroup& group,
                       const std::string& backend) {
  std::string head = fmt::format("{} of {} over {}{}, {}: {} on {}, {} after {} untimed\n",
                                 name_of(options.operation), to_string(options.dtype), backend,
                                 options.through_mxnet ? " through MXNet" : "", mode_of(options),
                                 plural(static_cast<size_t>(group.size), "rank"),
                                 plural(static_cast<size_t>(group.hosts), "host"),
                                 plural(options.iterations, "iteration"), options.warmup);
  head += fmt::format("{:>12} {:>12} {:>7} {:>9} {:>9} {:>11} {:>11} {:>9}", "name", "bytes",
                      "tensors", "median", "p95", "algbw GB/s", "busbw GB/s", "x memcpy");
  if (options.link_bits_per_second > 0) head += fmt::format(" {:>9}", "% of link");
  return head + "  slowest rank     values\n";
}

std::string table_row(const BenchOptions& options, const BenchResult& result) {
  std::string row = fmt::format(
      "{:>12} {:>12} {:>7} {:>9} {:>9} {:>11.3f} {:>11.3f} {:>9}", result.name, result.bytes,
      result.calls, show_seconds(result.median_seconds), show_seconds(result.p95_seconds),
      result.algorithm_bandwidth * 1e-9, result.bus_bandwidth * 1e-9,
      result.memcpy_ratio > 0
          ? fmt::format("{:.{}f}", result.memcpy_ratio, result.memcpy_ratio < 100 ? 2 : 0)
          : "-");
  if (options.link_bits_per_second > 0) {
    row += fmt::format(
        " {:>9}", result.link_share > 0 ? fmt::format("{:.1f}", 100 * result.link_share) : "-");
  }
  const std::string slowest = fmt::format("{} in {}/{}", result.slowest_rank, result.slowest_count,
                                          result.iterations.size());
  const std::string values =
      result.wrong_ranks.empty()
          ? "right"
          : fmt::format("WRONG on rank {}", fmt::join(result.wrong_ranks, ", "));
  return row + fmt::format("  {:<15}  {}\n", slowest, values);
}

std::string results_json(const BenchOptions& options, const BenchGroup& group,
                         const std::string& backend, const std::vector<BenchResult>& results) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchResult& result : results) {
    rows.push_back({{"name", result.name},
                    {"backend", backend},
                    {"ranks", group.size},
                    {"hosts", group.hosts},
                    {"dtype", to_string(options.dtype)},
                    {"bytes", result.bytes},
                    {"median_s", result.median_seconds},
                    {"p95_s", result.p95_seconds},
                    {"algbw_Bps", result.algorithm_bandwidth},
                    {"busbw_Bps", result.bus_bandwidth},
                    {"memcpy_ratio", result.memcpy_ratio},
                    {"correct", result.wrong_ranks.empty()}});
  }
  const nlohmann::ordered_json all = {{"context", context(options, group, results)},
                                      {"results", std::move(rows)}};
  return all.dump(1) + "\n";
}

BenchBar::BenchBar(Place place, size_t iterations)
    : place_(place), total_(std::max<size_t>(1, iterations)) {}

BenchBar::~BenchBar() {
  if (shown_ && place_ == Place::kRelayed) fmt::print(stderr, "\n");
  clear();
}

void BenchBar::update(const std::string& what, size_t done) {
  constexpr auto kLong = std::chrono::seconds(2);
  constexpr size_t kWidth = 30;
  if (place_ == Place::kNowhere || Clock::now() - start_ < kLong) return;
  const size_t full = std::min(kWidth, kWidth * done / total_);
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  fmt::print(stderr, "\r[{:<{}}] {}/{} iterations, {}, {:.0f} s  ", std::string(full, '#'), kWidth,
             done, total_, what, seconds);
  shown_ = true;
}

void BenchBar::clear() {
  if (shown_ && place_ == Place::kTerminal) fmt::print(stderr, "\r\033[K");
}

}  // namespace pushpull::launcher
