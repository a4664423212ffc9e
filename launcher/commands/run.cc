// pushpull run: starts the workers of a job and sees it through.
#include <CLI/CLI.hpp>

#include "core/environment.h"
#include "launcher/command.h"
#include "launcher/config_flags.h"
#include "launcher/start.h"

namespace pushpull::launcher {
namespace {

constexpr const char* kExamples = R"(Examples:
  pushpull run -n 2 -- python train.py --epochs 5
  pushpull run -c configs/mpi.yaml -n 4 -- python train.py
  pushpull run -n 2 --backend gloo-redis --rendezvous redis://server:6379/0 -- python train.py
  pushpull run --hosts a:2,b:2 -- python train.py
  pushpull run --engine slurm -n 4 -- python train.py | sbatch
  pushpull run -c configs/kubernetes.yaml --engine kubernetes -- python examples/gluon_digits.py

Workers' output comes tagged with their rank. Exit code: that of the worker that failed first (128 + signal
where a signal ended it); 2 wrong usage; 124 timeout; 126, 127 the command cannot be run, is not found;
130 interrupted; 75 from a worker means that starting the job again helps.)";

class RunCommand : public Command {
 public:
  CLI::App* add_to(CLI::App& program) override {
    CLI::App* app =
        program.add_subcommand("run", "Starts the workers of a job and sees it through.");
    flags_.add_to(*app);
    app->add_flag("--dry-run", dry_run_, "Print what would be started, and start nothing.");
    app->footer(kExamples);
    return app;
  }

  int run(const std::vector<std::string>& words) override {
    const auto config = flags_.load(environment_variable);
    if (!config) return usage_error(config.error());
    return start_job(*config, words, {.config_file = flags_.file(), .dry_run = dry_run_});
  }

 private:
  ConfigFlags flags_;
  bool dry_run_ = false;
};

}  // namespace

std::unique_ptr<Command> make_run_command() { return std::make_unique<RunCommand>(); }

}  // namespace pushpull::launcher
