#include "launcher/bench/options.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/config.h"
#include "core/text.h"

namespace pushpull::launcher {
namespace {

constexpr std::string_view kDefaultSizes = "1KiB-64MiB";
constexpr size_t kMostSizes = 1000;
constexpr int64_t kMostIterations = 1'000'000;

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

Result<size_t> parse_count(std::string_view flag, const std::string& text, size_t least,
                           size_t otherwise) {
  if (text.empty()) return otherwise;
  const auto value = parse_integer(text);
  if (!value || *value < static_cast<int64_t>(least) || *value > kMostIterations) {
    return invalid(fmt::format("flag {}: {} is not a number from {} to {}", flag, in_quotes(text),
                               least, kMostIterations));
  }
  return static_cast<size_t>(*value);
}

Result<DType> parse_bench_dtype(const std::string& text) {
  if (const auto dtype = parse_dtype(text)) return *dtype;
  std::vector<std::string> known;
  for (const DType dtype : kAllDTypes) known.emplace_back(to_string(dtype));
  return invalid(fmt::format("flag --dtype: unknown type {}; known are {}", in_quotes(text),
                             fmt::join(known, ", ")));
}

// "64KiB": the largest unit in which it is a whole number.
std::string show_size(size_t bytes) {
  constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  for (; unit + 1 < std::size(kUnits) && bytes % 1024 == 0; ++unit) bytes /= 1024;
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

Result<void> check_choice(std::string_view flag, const std::string& text, std::string_view one,
                          std::string_view other) {
  if (text == one || text == other) return {};
  return invalid(
      fmt::format("flag {}: {} is neither {} nor {}", flag, in_quotes(text), one, other));
}

}  // namespace

size_t BenchCase::elements() const {
  return std::accumulate(counts.begin(), counts.end(), size_t{0});
}

void BenchFlags::add_to(CLI::App& command) {
  const auto option = [&](const char* name, std::string& value, const char* type,
                          const char* help) {
    command.add_option(name, value, help)->type_name(type);
  };
  option("--sizes", sizes_, "SIZES",
         "Bytes of one tensor per row, as in 4,1KiB or 1KiB-64MiB. Default: 1KiB-64MiB.");
  option("--factor", factor_, "N",
         "By how much a range of sizes grows from row to row. Default: 2.");
  option("--model", model_, "NAME",
         "Exchange a model's gradients instead: resnet50 vgg16 bert-base, or a file with one "
         "number of "
         "elements per line.");
  command.add_flag("--fused", fused_, "With --model: one call for all its tensors.");
  command.add_flag("--latency", latency_,
                   "Synchronous: calls follow each other without a barrier between them.");
  option("--op", operation_, "OPERATION", "One of: pushpull broadcast. Default: pushpull.");
  option("--dtype", dtype_, "TYPE", "Element type. Default: float32.");
  option("--iters", iterations_, "N", "Timed iterations per row. Default: 20; 300 with --latency.");
  option("--warmup", warmup_, "N", "Untimed ones before them. Default: 5; 50 with --latency.");
  option("--level", level_, "LEVEL",
         "Whose calls are timed. One of: store (C++), mxnet (kv.pushpull and waitall). Default: "
         "store.");
  option("--link-rate", link_rate_, "RATE",
         "Rate of a host's link, as in 10gbit: adds a column with the share of it that was used.");
  option("--json", json_, "FILE", "Also write the results there.");
}

Result<std::vector<size_t>> parse_sizes(std::string_view text, size_t factor) {
  std::vector<size_t> sizes;
  for (const std::string_view item : split(text, ',')) {
    const auto ends = split(item, '-');
    const auto first = parse_bytes(ends.front());
    const auto last = parse_bytes(ends.back());
    if (ends.size() > 2 || !first || !last || *first == 0 || *last < *first) {
      return invalid(
          fmt::format("flag --sizes: {} is neither a size, as 64KiB, nor a range of sizes, as "
                      "1KiB-64MiB",
                      in_quotes(item)));
    }
    for (size_t size = *first; size <= *last; size *= factor) {
      if (sizes.size() == kMostSizes) return invalid("flag --sizes: more than 1000 sizes");
      sizes.push_back(size);
      if (size > *last / factor) break;
    }
  }
  return sizes;
}

Result<double> parse_link_rate(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
  for (const auto& [unit, factor] : kUnits) {
    if (text.size() <= unit.size() || text.substr(text.size() - unit.size()) != unit) continue;
    const std::string number(text.substr(0, text.size() - unit.size()));
    char* end = nullptr;
    const double value = std::strtod(number.c_str(), &end);
    const bool plain = number.find_first_not_of("0123456789.") == std::string::npos;
    if (plain && *end == '\0' && value > 0) return value * factor;
  }
  return invalid(fmt::format("flag --link-rate: {} is no link rate; write for example 1gbit",
                             in_quotes(text)));
}

Result<std::vector<BenchCase>> BenchFlags::cases(DType dtype, const std::string& folder) const {
  if (!model_.empty()) {
    if (!sizes_.empty()) return invalid("flags --model and --sizes exclude each other");
    auto counts = read_model(model_, folder);
    if (!counts) return fail(counts.error());
    std::reverse(counts->begin(), counts->end());  // as a backward pass produces gradients
    const std::string name = model_.substr(model_.rfind('/') + 1);
    BenchCase one{name.substr(0, name.rfind(".txt")), std::move(*counts)};
    if (fused_) one.counts = {one.elements()};
    return std::vector<BenchCase>{std::move(one)};
  }
  if (fused_) return invalid("flag --fused needs --model: sizes are one tensor each");
  const auto factor = parse_count("--factor", factor_, 2, 2);
  if (!factor) return fail(factor.error());
  const auto sizes = parse_sizes(sizes_.empty() ? kDefaultSizes : sizes_, *factor);
  if (!sizes) return fail(sizes.error());
  std::vector<BenchCase> rows;
  for (const size_t size : *sizes) {
    const size_t count = std::max<size_t>(1, size / size_of(dtype));
    rows.push_back({show_size(count * size_of(dtype)), {count}});
  }
  return rows;
}

Result<BenchOptions> BenchFlags::parse(const std::string& model_folder) const {
  BenchOptions options;
  if (auto ok = check_choice("--op", operation_, "pushpull", "broadcast"); !ok)
    return fail(ok.error());
  if (auto ok = check_choice("--level", level_, "store", "mxnet"); !ok) return fail(ok.error());
  options.operation =
      operation_ == "broadcast" ? BenchOperation::kBroadcast : BenchOperation::kPushPull;
  options.through_mxnet = level_ == "mxnet";
  options.synchronous = latency_;
  options.fused = fused_;
  options.json_file = json_;
  const auto dtype = parse_bench_dtype(dtype_);
  const auto iterations = parse_count("--iters", iterations_, 1, latency_ ? 300 : 20);
  const auto warmup = parse_count("--warmup", warmup_, 0, latency_ ? 50 : 5);
  if (!dtype) return fail(dtype.error());
  if (!iterations) return fail(iterations.error());
  if (!warmup) return fail(warmup.error());
  options.dtype = *dtype;
  options.iterations = *iterations;
  options.warmup = *warmup;
  if (!link_rate_.empty()) {
    const auto rate = parse_link_rate(link_rate_);
    if (!rate) return fail(rate.error());
    options.link_bits_per_second = *rate;
  }
  auto rows = cases(options.dtype, model_folder);
  if (!rows) return fail(rows.error());
  options.cases = std::move(*rows);
  return options;
}

std::vector<std::string> BenchFlags::words(const std::string& working_folder) const {
  std::vector<std::string> words;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  const auto absolute = [&](const std::string& path) {
    return path.empty() || path.front() == '/' ? path : working_folder + "/" + path;
  };
  add("--sizes", sizes_);
  add("--factor", factor_);
  add("--model", is_model_file(model_) ? absolute(model_) : model_);
  add("--op", operation_);
  add("--dtype", dtype_);
  add("--level", level_);
  add("--iters", iterations_);
  add("--warmup", warmup_);
  add("--link-rate", link_rate_);
  add("--json", absolute(json_));
  if (fused_) words.emplace_back("--fused");
  if (latency_) words.emplace_back("--latency");
  return words;
}

}  // namespace pushpull::launcher
