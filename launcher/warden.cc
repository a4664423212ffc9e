#include "launcher/warden.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include <fmt/format.h>

#include "core/error.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

[[noreturn]] void run_inner(const std::function<int(int)>& work, Pipe& alive,
                            const sigset_t& mask) {
  alive.write.close();
  setpgid(0, 0);             // or a Ctrl-C would reach it from the terminal and from the warden
  signal(SIGTTOU, SIG_IGN);  // and it may write to a terminal that is set to stop background output
  become_subreaper();
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  _exit(work(alive.read.fd()));
}

// Until the inner process has ended: its wait status.
int watch(pid_t inner, const sigset_t& signals) {
  while (true) {
    siginfo_t info{};
    if (sigwaitinfo(&signals, &info) < 0) continue;
    if (info.si_signo != SIGCHLD) {
      kill(inner, info.si_signo);
      continue;
    }
    int status = 0;
    pid_t pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      if (pid == inner) return status;
    }
  }
}

}  // namespace

int run_watched(const std::function<int(int)>& work) {
  become_subreaper();
  signal(SIGINT,
         SIG_DFL);  // scripts start background jobs with SIGINT ignored, but a job must end by it
  signal(SIGPIPE, SIG_IGN);
  auto alive = make_pipe();
  if (!alive) {
    fmt::print(stderr, "pushpull: error: {}\n", alive.error().message());
    return 1;
  }
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int number : kPassedOn) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t inner = fork();
  if (inner < 0) {
    fmt::print(stderr, "pushpull: error: cannot start a process: {}\n", errno_text(errno));
    return 1;
  }
  if (inner == 0) run_inner(work, *alive, before);
  const int status = watch(inner, signals);
  end_all_children(std::chrono::milliseconds(WIFSIGNALED(status) ? 0 : 500));
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (WIFSIGNALED(status)) {
    fmt::print(stderr, "pushpull: error: the launcher was ended by {}\n", describe_status(status));
  }
  return exit_code_of_status(status);
}

}  // namespace pushpull::launcher
