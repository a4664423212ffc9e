#include "tests/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "core/net/socket.h"

namespace pushpull::testing {

namespace {

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& more) {
  std::vector<std::string> list;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!more.contains(text.substr(0, text.find('=')))) list.push_back(text);
  }
  for (const auto& [name, value] : more) list.push_back(fmt::format("{}={}", name, value));
  return list;
}

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(char* const* words, char* const* environment, int output, int report,
                         pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execvpe(words[0], words, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(report, &error, sizeof error);
  _exit(127);
}

}  // namespace

Result<Process> Process::start(const std::vector<std::string>& words, const std::string& output,
                               const std::map<std::string, std::string>& environment) {
  auto words_copy = words;
  auto environment_copy = merged_environment(environment);
  const auto argv = pointers(words_copy);
  const auto envp = pointers(environment_copy);
  const Socket out(open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  int ends[2];
  if (!out.valid() || pipe2(ends, O_CLOEXEC) != 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("{}: {}", output, errno_text(errno)));
  }
  const Socket read_end(ends[0]);
  Socket write_end(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(argv.data(), envp.data(), out.fd(), write_end.fd(), parent);
  write_end.close();
  int error = pid < 0 ? errno : 0;
  Process process(pid);
  if (pid > 0 && read(read_end.fd(), &error, sizeof error) <= 0) return process;
  return fail(ErrorCode::kUnavailable,
              fmt::format("the program {} cannot be started ({}); install the package that has it",
                          words.front(), errno_text(error)));
}

Process& Process::operator=(Process&& other) noexcept {
  if (this != &other) {
    kill();
    pid_ = std::exchange(other.pid_, -1);
  }
  return *this;
}

bool Process::running() {
  if (pid_ <= 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == 0) return true;
  pid_ = -1;
  return false;
}

void Process::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

int Process::wait() {
  if (pid_ <= 0) return -1;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void Process::kill() {
  if (pid_ <= 0) return;
  signal(SIGKILL);
  wait();
}

TemporaryDirectory::TemporaryDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "pushpull-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace pushpull::testing
