// pushpull run: starts the workers of a job and sees it through.
#include <sched.h>
#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/environment.h"
#include "core/registry.h"
#include "launcher/command.h"
#include "launcher/config_flags.h"
#include "launcher/job.h"
#include "launcher/manifest/kubernetes_run.h"
#include "launcher/manifest/manifest.h"
#include "launcher/plan.h"
#include "launcher/process.h"
#include "launcher/random_text.h"
#include "launcher/reserved_port.h"
#include "launcher/start.h"
#include "launcher/warden.h"

namespace pushpull::launcher {
namespace {

constexpr const char* kExamples = R"(Examples:
  pushpull run -n 2 -- python train.py --epochs 5
  pushpull run -c configs/mpi.yaml -n 4 -- python train.py
  pushpull run -n 2 --backend gloo-redis --rendezvous redis://server:6379/0 -- python train.py
  pushpull run -c configs/kubernetes.yaml --engine kubernetes -- python examples/gluon_digits.py

Workers' output comes tagged with their rank. Exit code: that of the worker that failed first (128 + signal
where a signal ended it); 2 wrong usage; 124 timeout; 126, 127 the command cannot be run, is not found;
130 interrupted; 75 from a worker means that starting the job again helps.)";

std::vector<int> usable_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<size_t>(core), &set)) cores.push_back(core);
  }
  return cores;
}

Surroundings look_around(const Config& config, const ReservedPort& rendezvous,
                         const ReservedPort& redis) {
  Surroundings around;
  around.backends = Registry(config.text("backend_path")).backend_names();
  around.environment = whole_environment();
  std::error_code ignored;
  around.folder = command_folder();
  around.working_folder = std::filesystem::current_path(ignored).string();
  around.cores = usable_cores();
  around.is_root = geteuid() == 0;
  around.is_terminal = isatty(STDIN_FILENO) == 1;
  around.run = random_text(4);
  around.secret = random_text(32);
  around.redis_password = random_text(32);
  around.rendezvous_port = rendezvous.number();
  around.redis_port = redis.number();
  return around;
}

int usage_error(const Error& error) {
  fmt::print(stderr, "pushpull: error: {}\n", error.message());
  return kExitUsage;
}

// The objects get a name that no other run has, so that a job can run twice at once.
int start_in_pods(const Config& config, const std::vector<std::string>& command, bool dry_run) {
  auto job =
      make_kubernetes_job(config, command, {random_text(32), random_text(32), random_text(4)});
  if (!job) return usage_error(job.error());
  if (dry_run) {
    for (auto& [key, value] : job->secrets) value = "***";
  }
  const auto objects = manifest(*job);
  if (!objects) return usage_error(objects.error());
  if (dry_run) {
    fmt::print("{}", *objects);
    return 0;
  }
  const KubernetesRun run{*job, *objects, config.text("kubernetes.context"), whole_environment(),
                          config.text("launch.log_dir")};
  return run_watched([&](int alive) { return run_on_kubernetes(run, alive); });
}

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

std::string command_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

int start_job(const Config& config, const std::vector<std::string>& command,
              const StartOptions& options) {
  if (config.text("launch.engine") == "kubernetes")
    return start_in_pods(config, command, options.dry_run);
  auto rendezvous = ReservedPort::make();
  auto redis = ReservedPort::make();
  if (!rendezvous || !redis) return usage_error((rendezvous ? redis : rendezvous).error());
  const Surroundings around = look_around(config, *rendezvous, *redis);
  auto plan = make_plan(config, options.config_file, command, around);
  if (!plan) return usage_error(plan.error());
  plan->tagged = options.tagged;
  if (options.dry_run) {
    fmt::print("{}", describe(*plan, around.environment));
    return 0;
  }
  return run_watched([&](int alive) { return run_job(*plan, alive); });
}

std::unique_ptr<Command> make_run_command() { return std::make_unique<RunCommand>(); }

}  // namespace pushpull::launcher
