#include "launcher/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "core/deadline.h"
#include "core/text.h"
#include "launcher/environment_block.h"

namespace pushpull::launcher {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// What the child needs, made before the fork: after it only async-signal-safe calls are allowed.
struct ChildPlan {
  const char* program;
  char* const* argv;
  char* const* environment;
  cpu_set_t cores;
  bool bind;
  int input, output, error;
  int death_signal;
  pid_t parent;
  int report;  // gets errno if the program could not be executed
};

void redirect(int from, int to, int open_flags) {
  if (from < 0) from = open("/dev/null", open_flags);
  if (from == to) {
    fcntl(to, F_SETFD, 0);
  } else {
    dup2(from, to);
  }
}

[[noreturn]] void run_child(const ChildPlan& plan) {
  setpgid(0, 0);
  if (plan.death_signal != 0) {
    prctl(PR_SET_PDEATHSIG, plan.death_signal);
    if (getppid() != plan.parent) _exit(128 + SIGKILL);  // died before the call above
  }
  for (int number = 1; number < SIGRTMIN; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.bind) sched_setaffinity(0, sizeof(plan.cores), &plan.cores);
  redirect(plan.input, 0, O_RDONLY);
  redirect(plan.output, 1, O_WRONLY);
  redirect(plan.error, 2, O_WRONLY);
  execve(plan.program, plan.argv, plan.environment);
  const int why = errno;
  [[maybe_unused]] const ssize_t told = write(plan.report, &why, sizeof(why));
  _exit(kExitNotExecutable);
}

Error exec_error(const std::string& program, int why) {
  const ErrorCode code = why == ENOENT ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument;
  std::string hint;
  if (why == ENOEXEC) hint = "; a script needs a first line such as #!/bin/sh";
  if (why == ENOENT) hint = "; the interpreter in its first line is missing";
  if (why == E2BIG) hint = "; an argument or a variable of the environment is too large";
  return Error(code, fmt::format("cannot run {}: {}{}", in_quotes(program), errno_text(why), hint));
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// Field after the name in /proc/<pid>/stat: state, parent, ...
pid_t parent_of(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(in, line);
  const size_t end = line.rfind(')');
  if (end == std::string::npos) return -1;
  char state = 0;
  int parent = -1;
  std::sscanf(line.c_str() + end + 1, " %c %d", &state, &parent);
  return state == 'Z' ? -1 : parent;
}

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> found;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return found;
  while (const dirent* entry = readdir(proc)) {
    pid_t pid = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, end, pid).ptr != end || pid <= 0) continue;
    if (parent_of(pid) == getpid()) found.push_back(pid);
  }
  closedir(proc);
  return found;
}

}  // namespace

Result<std::string> find_program(const std::string& name,
                                 const std::vector<std::string>& environment) {
  const auto not_executable = [&](const std::string& path) {
    return fail(ErrorCode::kInvalidArgument,
                is_folder(path)
                    ? fmt::format("{} is a folder, not a program", in_quotes(path))
                    : fmt::format("{} is not executable; set its mode by chmod +x, or give "
                                  "the program that runs it, such as python",
                                  in_quotes(path)));
  };
  if (name.find('/') != std::string::npos) {
    if (access(name.c_str(), F_OK) != 0) {
      return fail(ErrorCode::kUnavailable, fmt::format("command not found: {}", in_quotes(name)));
    }
    if (is_folder(name) || access(name.c_str(), X_OK) != 0) return not_executable(name);
    return name;
  }
  const std::string path =
      EnvironmentBlock(environment).get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
  std::string found_but_not_executable;
  for (size_t start = 0; start <= path.size() && !name.empty();) {
    const size_t end = std::min(path.find(':', start), path.size());
    std::string folder = path.substr(start, end - start);
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    start = end + 1;
    if (access(candidate.c_str(), F_OK) != 0 || is_folder(candidate)) continue;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    if (found_but_not_executable.empty()) found_but_not_executable = candidate;
  }
  if (!found_but_not_executable.empty()) return not_executable(found_but_not_executable);
  const char* hint =
      name == "python" ? "; give python3, or the path of the Python that has mxnet" : "";
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("command not found: {} is not in any folder of PATH{}", in_quotes(name), hint));
}

int exit_code_of(const Error& spawn_error) {
  return spawn_error.code() == ErrorCode::kUnavailable ? kExitNotFound : kExitNotExecutable;
}

Result<pid_t> spawn(const SpawnOptions& options) {
  const auto program = find_program(options.argv.at(0), options.environment);
  if (!program) return fail(program.error());
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("cannot make a pipe: {}", errno_text(errno)));
  }
  Socket report_read(report[0]);
  Socket report_write(report[1]);
  const std::vector<char*> argv = pointers(options.argv);
  const std::vector<char*> environment = pointers(options.environment);
  ChildPlan plan{program->c_str(),       argv.data(),   environment.data(), {},
                 !options.cores.empty(), options.input, options.output,     options.error,
                 options.death_signal,   getpid(),      report_write.fd()};
  CPU_ZERO(&plan.cores);
  for (const int core : options.cores) CPU_SET(static_cast<size_t>(core), &plan.cores);
  const pid_t pid = fork();
  if (pid < 0) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot start a process: {}", errno_text(errno)));
  }
  if (pid == 0) run_child(plan);
  setpgid(pid, pid);  // both sides do it, so that it holds whoever runs first
  report_write.close();
  int why = 0;
  ssize_t got;
  do {
    got = read(report_read.fd(), &why, sizeof(why));
  } while (got < 0 && errno == EINTR);
  if (got != static_cast<ssize_t>(sizeof(why))) return pid;
  waitpid(pid, nullptr, 0);
  return fail(exec_error(*program, why));
}

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("cannot make a pipe: {}", errno_text(errno)));
  }
  Pipe pipe{Socket(ends[0]), Socket(ends[1])};
  fcntl(pipe.read.fd(), F_SETFL, O_NONBLOCK);
  fcntl(pipe.read.fd(), F_SETPIPE_SZ, 1 << 20);  // a smaller one works as well
  return pipe;
}

void become_subreaper() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<pid_t> stray_children(const std::vector<pid_t>& known) {
  std::vector<pid_t> strays = children_of_this_process();
  const auto is_known = [&](pid_t pid) {
    return std::find(known.begin(), known.end(), pid) != known.end();
  };
  strays.erase(std::remove_if(strays.begin(), strays.end(), is_known), strays.end());
  return strays;
}

std::string program_name(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(in, name);
  return name.empty() ? "?" : name;
}

std::vector<std::string> end_all_children(std::chrono::milliseconds patience) {
  std::vector<std::string> found;
  std::set<pid_t> seen;
  const Deadline kill_at = deadline_in(patience);
  const Deadline give_up_at = kill_at + std::chrono::seconds(2);
  while (Clock::now() < give_up_at) {
    pid_t ended = 0;
    do {
      ended = waitpid(-1, nullptr, WNOHANG);
    } while (ended > 0);
    // A look at /proc may miss one whose parent ends meanwhile; the kernel does not.
    if (ended < 0 && errno == ECHILD) break;
    for (const pid_t child : stray_children({})) {
      const bool is_new = seen.insert(child).second;
      if (is_new) found.push_back(fmt::format("{} (pid {})", program_name(child), child));
      const bool kill_now = Clock::now() >= kill_at;
      if (is_new || kill_now) kill(child, kill_now ? SIGKILL : SIGTERM);
      if (is_new && !kill_now) kill(child, SIGCONT);  // a stopped process would not notice
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  return found;
}

Result<Socket> open_log_file(const std::string& path, bool append) {
  const int how = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC);
  Socket file(open(path.c_str(), how, 0666));
  if (file.valid()) return file;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("cannot write {}: {}", in_quotes(path), errno_text(errno)));
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

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

std::string describe_status(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int number = WTERMSIG(wait_status);
    const char* text = sigdescr_np(number);
    return fmt::format("signal {} ({})", number, text != nullptr ? text : "unknown");
  }
  return fmt::format("exit code {}", WEXITSTATUS(wait_status));
}

int exit_code_of_status(int wait_status) {
  return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

}  // namespace pushpull::launcher
