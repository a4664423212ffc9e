// pushpull bench: how long exchanges take, as the workers of a job.
//
// Without a starter around, the command starts itself as the workers (like `pushpull run`); a
// worker joins its group as any training script does. So the table is made by the same code however
// it was started.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/environment.h"
#include "launcher/bench/measurer.h"
#include "launcher/bench/options.h"
#include "launcher/bench/report.h"
#include "launcher/command.h"
#include "launcher/config_flags.h"
#include "launcher/environment_block.h"
#include "launcher/process.h"
#include "launcher/start.h"

namespace pushpull::launcher {
namespace {

constexpr const char* kExamples = R"(Examples:
  pushpull bench -n 2 --model resnet50                 gradients of a model, a call per tensor
  pushpull bench -n 4 --model bert-base --fused        one call for all of them
  pushpull bench -n 2 --sizes 4-1MiB --latency         single calls, one after the other
  pushpull bench -n 2 --model vgg16 --level mxnet      through MXNet's kv.pushpull and waitall
  mpirun -n 8 pushpull bench --backend mpi             started by others: joins as a worker

An iteration counts with its slowest rank. Values are compared with exact sums before and after the timed
iterations. Exit code: 0; 1 a value was wrong or the bench failed; 2 wrong usage; else as of pushpull run.
docs/bench.md explains the columns.)";

constexpr int kExitFailure = 1;
constexpr const char* kDefaultWorkers = "2";

int failure(const Error& error) {
  fmt::print(stderr, "pushpull: error: {}\n", error.message());
  return error.restartable() ? kExitRestart : kExitFailure;
}

class BenchCommand : public Command {
 public:
  CLI::App* add_to(CLI::App& program) override {
    CLI::App* app = program.add_subcommand("bench", "Measures how long exchanges take.");
    bench_flags_.add_to(*app);
    config_flags_.add_to(*app);
    app->add_flag("--dry-run", dry_run_, "Print what would be started, and start nothing.");
    app->add_flag("--relayed-progress", relayed_)->group("");  // given to the workers it starts
    app->footer(kExamples);
    return app;
  }

  int run(const std::vector<std::string>& words) override {
    if (!words.empty()) {
      return usage_error(fmt::format("bench takes no command; leave out '{}'", words.front()));
    }
    const auto options = bench_flags_.parse(installed_models());
    if (!options) return usage_error(options.error());
    const auto config = config_flags_.load(environment_variable);
    if (!config) return usage_error(config.error());
    const auto starter = detect_starter(environment_variable);
    if (!starter) return usage_error(starter.error());
    // A batch script of Slurm is "rank 0 of 1", and starts workers like any shell.
    const bool is_worker = environment_variable("PUSHPULL_RANK").value_or("") != "" ||
                           (starter->rank && starter->size.value_or(1) > 1);
    return is_worker ? work(*options, *config) : start(*config);
  }

 private:
  int start(const Config& config) {
    std::error_code ignored;
    std::vector<std::string> command = {command_folder() + "/pushpull", "bench"};
    const auto words = bench_flags_.words(std::filesystem::current_path(ignored).string());
    command.insert(command.end(), words.begin(), words.end());
    if (isatty(STDERR_FILENO) == 1) command.emplace_back("--relayed-progress");
    const StartOptions how{
        .config_file = config_flags_.file(), .dry_run = dry_run_, .tagged = false};
    if (!config.is_default("workers")) return start_job(config, command, how);
    const auto with_default = config_flags_.load([](std::string_view name) {
      return name == "PUSHPULL_SIZE" ? std::string(kDefaultWorkers) : environment_variable(name);
    });
    return with_default ? start_job(*with_default, command, how)
                        : usage_error(with_default.error());
  }

  // What a child process needs to know what this one knows from its flags.
  std::vector<std::string> environment_of_child(const Config& config) const {
    EnvironmentBlock block(whole_environment());
    if (!config_flags_.file().empty()) block.set("PUSHPULL_CONFIG", config_flags_.file());
    for (const ConfigKey& key : config_schema()) {
      const ConfigValue& value = config.value(key.path);
      if (!key.variable.empty() && value.origin.rfind("flag ", 0) == 0) {
        block.set(key.variable, value.text);
      }
    }
    return block.entries();
  }

  int work(const BenchOptions& options, const Config& config) {
    auto measurer = options.through_mxnet ? make_mxnet_measurer(options, command_folder(),
                                                                environment_of_child(config))
                                          : make_store_measurer(options, config);
    if (!measurer) return failure(measurer.error());
    const auto settings = config.settings();
    const auto all_right = measure(options, settings ? settings->backend : "", **measurer);
    if (!all_right) return failure(all_right.error());
    if (auto ok = (*measurer)->finish(); !ok) return failure(ok.error());
    return *all_right ? 0 : kExitFailure;
  }

  Result<bool> measure(const BenchOptions& options, const std::string& backend,
                       Measurer& measurer) const {
    const BenchGroup& group = measurer.group();
    const bool speaks = group.rank == 0;
    const auto place = !speaks                      ? BenchBar::Place::kNowhere
                       : relayed_                   ? BenchBar::Place::kRelayed
                       : isatty(STDERR_FILENO) == 1 ? BenchBar::Place::kTerminal
                                                    : BenchBar::Place::kNowhere;
    std::ofstream json;
    if (speaks && !options.json_file.empty()) {
      json.open(options.json_file);
      if (!json) return fail(cannot_write(options.json_file));
    }
    if (speaks) print(table_head(options, group, backend));
    BenchBar bar(place, options.cases.size() * options.iterations);
    std::vector<BenchResult> results;
    for (const BenchCase& one : options.cases) {
      const size_t before = results.size() * options.iterations;
      const auto found =
          measurer.measure(one, [&](size_t done) { bar.update(one.name, before + done); });
      if (!found) return fail(found.error());
      results.push_back(evaluate(options, group, one, *found));
      bar.clear();
      if (speaks) print(table_row(options, results.back()));
    }
    if (json.is_open() && !(json << results_json(options, group, backend, results)).flush()) {
      return fail(cannot_write(options.json_file));
    }
    return std::all_of(results.begin(), results.end(),
                       [](const BenchResult& result) { return result.wrong_ranks.empty(); });
  }

  static Error cannot_write(const std::string& file) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("cannot write {}: {}", file, errno_text(errno)));
  }

  static void print(const std::string& lines) {
    fmt::print("{}", lines);
    std::fflush(stdout);
  }

  BenchFlags bench_flags_;
  ConfigFlags config_flags_;
  bool dry_run_ = false;
  bool relayed_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench_command() { return std::make_unique<BenchCommand>(); }

}  // namespace pushpull::launcher
