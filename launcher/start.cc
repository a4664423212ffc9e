#include "launcher/start.h"

#include <fcntl.h>
#include <string.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include <fmt/format.h>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "core/environment.h"
#include "core/net/hello.h"
#include "launcher/attempt.h"
#include "launcher/command.h"
#include "launcher/job.h"
#include "launcher/manifest/kubernetes_run.h"
#include "launcher/manifest/manifest.h"
#include "launcher/process.h"
#include "launcher/warden.h"

namespace pushpull::launcher {
namespace {

constexpr auto kRestartPause = std::chrono::seconds(1);

// The objects get a name that no other run has, so that a job can run twice at once.
int start_in_pods(const Config& config, const std::vector<std::string>& command, bool dry_run) {
  auto job = make_kubernetes_job(config, command,
                                 {random_secret(), random_secret(), random_id().substr(0, 8)});
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

// What made the job end may need a moment to be over. Returns 0, or the exit code where a signal,
// or the end of the process that watches over this one, came first.
int pause_before_restart(int alive) {
  asio::io_context io;
  asio::signal_set signals(io);
  asio::posix::stream_descriptor watcher(io);
  asio::steady_timer timer(io, kRestartPause);
  asio::error_code ignored;
  watcher.assign(fcntl(alive, F_DUPFD_CLOEXEC, 3), ignored);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    if (number != SIGHUP || !is_ignored(SIGHUP)) signals.add(number, ignored);
  }
  int code = 0;
  std::function<void()> wait_for_signals = [&] {
    signals.async_wait([&](const asio::error_code& error, int number) {
      if (error) return;
      if (number == SIGUSR1 || number == SIGUSR2) return wait_for_signals();  // nobody to get it
      fmt::print(stderr, "pushpull: {}: the job is not started again\n", sigdescr_np(number));
      code = 128 + number;
      io.stop();
    });
  };
  wait_for_signals();
  watcher.async_wait(asio::posix::descriptor_base::wait_read, [&](const asio::error_code& error) {
    if (error) return;
    code = 1;
    io.stop();
  });
  timer.async_wait([&](const asio::error_code&) { io.stop(); });
  io.run();
  return code;
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
  const auto prepare = [&](bool again) {
    auto attempt = Attempt::prepare(config, options.config_file, command, options.tagged, again);
    if (!attempt) usage_error(attempt.error());
    return attempt;
  };
  const auto first = prepare(false);
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
      if (const int ended = pause_before_restart(alive); ended != 0) return ended;
      const auto next = prepare(true);
      if (!next) break;
      end = run_job(next->plan(), alive);
    }
    return end.code;
  });
}

}  // namespace pushpull::launcher
