// From flags to cases.
#include "launcher/bench/options.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

namespace pushpull::launcher {
namespace {

Result<BenchOptions> parse(std::vector<std::string> words) {
  CLI::App app;
  BenchFlags flags;
  flags.add_to(app);
  std::reverse(words.begin(), words.end());
  app.parse(words);
  return flags.parse(MODELS);
}

std::string error_of(const std::vector<std::string>& words) {
  const auto options = parse(words);
  return options ? "no error" : options.error().message();
}

TEST(BenchSizes, ListsAndRanges) {
  EXPECT_EQ(parse_sizes("4", 2).value(), (std::vector<size_t>{4}));
  EXPECT_EQ(parse_sizes("4,1KiB-4KiB,1MiB", 2).value(),
            (std::vector<size_t>{4, 1024, 2048, 4096, 1048576}));
  EXPECT_EQ(parse_sizes("1-100", 10).value(), (std::vector<size_t>{1, 10, 100}));
  EXPECT_EQ(parse_sizes("3-50", 4).value(), (std::vector<size_t>{3, 12, 48}));
  EXPECT_EQ(parse_sizes("7-7", 4).value(), (std::vector<size_t>{7}));
}

TEST(BenchSizes, WhatIsNoSize) {
  for (const char* text : {"", ",", "4,", "x", "0", "8-4", "1-2-3", "-4", "4-", "1KiB-"}) {
    EXPECT_FALSE(parse_sizes(text, 2)) << text;
  }
  EXPECT_EQ(
      parse_sizes("4,many", 2).error().message(),
      "flag --sizes: 'many' is neither a size, as 64KiB, nor a range of sizes, as 1KiB-64MiB");
}

TEST(BenchLinkRate, AsTcWritesThem) {
  EXPECT_EQ(parse_link_rate("1gbit").value(), 1e9);
  EXPECT_EQ(parse_link_rate("2.5gbit").value(), 2.5e9);
  EXPECT_EQ(parse_link_rate("100mbit").value(), 1e8);
  for (const char* text :
       {"", "gbit", "1", "1gb", "-1gbit", "0gbit", "1e3gbit", "1 gbit", "1.2.3gbit"}) {
    EXPECT_FALSE(parse_link_rate(text)) << text;
  }
}

TEST(BenchOptions, SizesByDefault) {
  const auto options = parse({}).value();
  EXPECT_EQ(options.iterations, 20u);
  EXPECT_EQ(options.warmup, 5u);
  ASSERT_EQ(options.cases.size(), 17u);
  EXPECT_EQ(options.cases.front().name, "1KiB");
  EXPECT_EQ(options.cases.back().name, "64MiB");
  EXPECT_EQ(options.cases.back().counts, (std::vector<size_t>{16u << 20}));
}

TEST(BenchOptions, ASizeIsAtLeastOneElement) {
  const auto options = parse({"--sizes", "1,20", "--dtype", "float64"}).value();
  EXPECT_EQ(options.cases[0].name, "8B");
  EXPECT_EQ(options.cases[1].name, "16B");
}

TEST(BenchOptions, AModelInTheOrderOfItsBackwardPass) {
  const auto options = parse({"--model", "resnet50"}).value();
  ASSERT_EQ(options.cases.size(), 1u);
  EXPECT_EQ(options.cases[0].name, "resnet50");
  EXPECT_EQ(options.cases[0].counts.size(), 161u);
  EXPECT_EQ(options.cases[0].elements(), 25'557'032u);
  EXPECT_EQ(options.cases[0].counts.front(), 1000u);  // the classifier's bias
  EXPECT_EQ(parse({"--model", "vgg16", "--fused"}).value().cases[0].counts,
            (std::vector<size_t>{138'357'544}));
  EXPECT_EQ(parse({"--model", "bert-base"}).value().cases[0].counts.size(), 199u);
}

TEST(BenchOptions, AModelOfOnesOwn) {
  const auto file =
      std::filesystem::temp_directory_path() / ("bench-model-" + std::to_string(getpid()));
  std::ofstream(file) << "# layers\n12 first 3x4\n\n5\n";
  EXPECT_EQ(parse({"--model", file.string()}).value().cases[0].counts,
            (std::vector<size_t>{5, 12}));
  std::ofstream(file) << "12\ntwelve\n";
  EXPECT_EQ(error_of({"--model", file.string()}),
            file.string() + ":2: 'twelve' does not begin with a number of elements");
  std::ofstream(file) << "\n";
  EXPECT_EQ(error_of({"--model", file.string()}),
            "flag --model: '" + file.string() + "' lists no tensors");
  std::filesystem::remove(file);
  EXPECT_EQ(error_of({"--model", file.string()}),
            "flag --model: cannot read '" + file.string() + "': No such file or directory");
}

TEST(BenchOptions, WhatDoesNotFit) {
  EXPECT_EQ(
      error_of({"--model", "resnet5"}),
      "flag --model: unknown model 'resnet5'; known are bert-base, bulk-400mb, resnet50, tiny, "
      "vgg16; did you mean 'resnet50'?; or give a file with one number of elements per line");
  EXPECT_EQ(error_of({"--model", "tiny", "--sizes", "4"}),
            "flags --model and --sizes exclude each other");
  EXPECT_EQ(error_of({"--fused"}), "flag --fused needs --model: sizes are one tensor each");
  EXPECT_EQ(error_of({"--op", "allgather"}),
            "flag --op: 'allgather' is neither pushpull nor broadcast");
  EXPECT_EQ(error_of({"--level", "c"}), "flag --level: 'c' is neither store nor mxnet");
  EXPECT_EQ(error_of({"--iters", "0"}), "flag --iters: '0' is not a number from 1 to 1000000");
  EXPECT_EQ(error_of({"--warmup", "-1"}), "flag --warmup: '-1' is not a number from 0 to 1000000");
  EXPECT_EQ(error_of({"--factor", "1"}), "flag --factor: '1' is not a number from 2 to 1000000");
  EXPECT_EQ(
      error_of({"--dtype", "float31"}),
      "flag --dtype: unknown type 'float31'; known are float32, float64, float16, bfloat16, int8, "
      "uint8, int32, int64");
}

TEST(BenchOptions, WorkersGetTheSameFlags) {
  const std::vector<std::string> given = {"--sizes",   "4-64",     "--factor", "4",       "--op",
                                          "broadcast", "--dtype",  "int8",     "--level", "store",
                                          "--iters",   "7",        "--warmup", "0",       "--json",
                                          "out.json",  "--latency"};
  CLI::App app;
  BenchFlags flags;
  flags.add_to(app);
  app.parse(std::vector<std::string>(given.rbegin(), given.rend()));
  auto expected = given;
  expected[15] = "folder/out.json";
  EXPECT_EQ(flags.words("folder"), expected);
}

}  // namespace
}  // namespace pushpull::launcher
