#include "launcher/start.h"

#include <filesystem>

#include <fmt/format.h>

#include "core/environment.h"
#include "launcher/attempt.h"
#include "launcher/job.h"
#include "launcher/manifest/kubernetes_run.h"
#include "launcher/manifest/manifest.h"
#include "launcher/process.h"
#include "launcher/random_text.h"
#include "launcher/warden.h"

namespace pushpull::launcher {
namespace {

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

}  // namespace

std::string command_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

int start_job(const Config& config, const std::vector<std::string>& command,
              const StartOptions& options) {
  if (config.text("launch.engine") == "kubernetes")
    return start_in_pods(config, command, options.dry_run);
  const auto prepare = [&] {
    auto attempt = Attempt::prepare(config, options.config_file, command, options.tagged);
    if (!attempt) usage_error(attempt.error());
    return attempt;
  };
  const auto first = prepare();
  if (!first) return kExitUsage;
  if (options.dry_run || !first->plan().script.empty()) {
    fmt::print("{}", describe(first->plan(), whole_environment()));
    return 0;
  }
  return run_watched([&](int alive) {
    JobEnd end = run_job(first->plan(), alive);
    const int most = first->plan().restarts;
    for (int restart = 1; restart <= most && end.restart_may_help; ++restart) {
      fmt::print(stderr, "pushpull: starting the job again ({} of at most {} times)\n", restart,
                 most);
      const auto next = prepare();
      if (!next) break;
      end = run_job(next->plan(), alive);
    }
    return end.code;
  });
}

}  // namespace pushpull::launcher
