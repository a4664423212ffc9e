// Child processes of tests. None outlives the test: the kernel kills them when the thread that
// started them ends, so start them from a thread that lives as long as they shall.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace pushpull::testing {

class Process {
 public:
  // Starts words[0] (looked up in PATH) with the rest as arguments and `environment` added to this
  // process's own; its output goes to the file `output`. Unavailable where there is no such
  // program.
  [[nodiscard]] static Result<Process> start(
      const std::vector<std::string>& words, const std::string& output = "/dev/null",
      const std::map<std::string, std::string>& environment = {});
  Process() = default;
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Process& operator=(Process&& other) noexcept;
  ~Process() { kill(); }

  pid_t pid() const { return pid_; }
  bool running();
  void signal(int number) const;
  // Waits for its end; the exit status, or -signal.
  int wait();
  // SIGKILL, and waits.
  void kill();

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_ = -1;
};

// A directory that is removed, with what is in it, at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string read_file(const std::string& path);

}  // namespace pushpull::testing
