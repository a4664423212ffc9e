// From times to a row: the slowest rank counts.
#include "launcher/bench/report.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pushpull::launcher {
namespace {

BenchOptions options_of(size_t iterations) {
  BenchOptions options;
  options.iterations = iterations;
  options.warmup = 1;
  options.cases = {{"model", {600, 400}}};
  return options;
}

BenchResult evaluated(const BenchOptions& options, const BenchGroup& group,
                      const Measurement& measurement) {
  return evaluate(options, group, options.cases.front(), measurement);
}

TEST(BenchReport, AnIterationCountsWithItsSlowestRank) {
  Measurement found;
  found.seconds = {{1, 3}, {4, 2}, {1, 5}, {2, 9}};
  const auto result = evaluated(options_of(4), {0, 2, 1}, found);
  EXPECT_EQ(result.iterations, (std::vector<double>{3, 4, 5, 9}));
  EXPECT_EQ(result.median_seconds, 4.5);
  EXPECT_EQ(result.p95_seconds, 9);
  EXPECT_EQ(result.slowest_rank, 1);
  EXPECT_EQ(result.slowest_count, 3u);
}

TEST(BenchReport, Bandwidths) {
  Measurement found;
  found.seconds = {std::vector<double>(4, 2e-6)};
  found.memcpy_seconds = 1e-6;
  found.cpu_seconds = {1, 2, 3, 4};
  auto options = options_of(1);
  options.link_bits_per_second = 1e10;
  auto result = evaluated(options, {0, 4, 2}, found);
  EXPECT_EQ(result.bytes, 4000u);
  EXPECT_EQ(result.calls, 2u);
  EXPECT_DOUBLE_EQ(result.algorithm_bandwidth, 2e9);
  EXPECT_DOUBLE_EQ(result.bus_bandwidth, 3e9);  // 2 * 3 / 4
  EXPECT_DOUBLE_EQ(result.memcpy_ratio, 2);
  EXPECT_DOUBLE_EQ(result.link_share, 1.6);  // 4000 bytes leave each of 2 hosts: 3.2 us
  EXPECT_DOUBLE_EQ(result.cpu_seconds, 10);
  options.operation = BenchOperation::kBroadcast;
  result = evaluated(options, {0, 4, 1}, found);
  EXPECT_DOUBLE_EQ(result.bus_bandwidth, 2e9);
  EXPECT_EQ(result.link_share, 0);
}

TEST(BenchReport, Times) {
  EXPECT_EQ(show_seconds(0), "0.00 us");
  EXPECT_EQ(show_seconds(1.234e-6), "1.23 us");
  EXPECT_EQ(show_seconds(45.67e-6), "45.7 us");
  EXPECT_EQ(show_seconds(0.0123), "12.3 ms");
  EXPECT_EQ(show_seconds(0.456), "456 ms");
  EXPECT_EQ(show_seconds(7.5), "7.50 s");
}

TEST(BenchReport, TheTable) {
  Measurement found;
  found.seconds = {{0.020, 0.010}, {0.021, 0.010}};
  found.memcpy_seconds = 0.010;
  auto options = options_of(2);
  options.cases = {{"resnet50", {20'000'000, 5'000'000}}};
  const BenchGroup group{0, 2, 1};
  EXPECT_EQ(
      table_head(options, group, "gloo") + table_row(options, evaluated(options, group, found)),
      "pushpull of float32 over gloo, per tensor: 2 ranks on 1 host, 2 iterations after 1 untimed\n"
      "        name        bytes tensors    median       p95  algbw GB/s  busbw GB/s  x memcpy  "
      "slowest rank     values\n"
      "    resnet50    100000000       2   20.5 ms   21.0 ms       4.878       4.878      2.05  "
      "0 in 2/2         right\n");
  found.wrong_ranks = {0, 1};
  EXPECT_NE(table_row(options, evaluated(options, group, found)).find("WRONG on rank 0, 1"),
            std::string::npos);
  options.link_bits_per_second = 1e9;
  EXPECT_NE(table_head(options, {0, 2, 2}, "mpi").find("% of link"), std::string::npos);
}

TEST(BenchReport, JsonHasTheseFieldsAndNoOthers) {
  Measurement found;
  found.seconds = {{0.5, 0.25}};
  found.memcpy_seconds = 0.25;
  found.wrong_ranks = {1};
  auto options = options_of(1);
  const BenchGroup group{0, 2, 1};
  const auto json = nlohmann::json::parse(
      results_json(options, group, "mpi", {evaluated(options, group, found)}));
  EXPECT_EQ(json.size(), 2u);
  EXPECT_TRUE(json["context"].is_object());
  const nlohmann::json expected = {
      {"name", "model"},     {"backend", "mpi"},    {"ranks", 2},          {"hosts", 1},
      {"dtype", "float32"},  {"bytes", 4000},       {"median_s", 0.5},     {"p95_s", 0.5},
      {"algbw_Bps", 8000.0}, {"busbw_Bps", 8000.0}, {"memcpy_ratio", 2.0}, {"correct", false}};
  EXPECT_EQ(json["results"], nlohmann::json::array({expected}));
  EXPECT_EQ(json["context"]["cases"][0]["slowest_rank"], 0);
}

}  // namespace
}  // namespace pushpull::launcher
