// Runs kubectl in the event loop.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "launcher/pipe_reader.h"

namespace pushpull::launcher {

// What a kubectl that has ended left.
struct KubectlEnd {
  int wait_status = 0;
  std::string out;
  std::string err;  // without the newline at the end
};

// Main thread only.
class Kubectl {
 public:
  using Done = std::function<void(const KubectlEnd&)>;
  using Receive = std::function<void(std::string_view)>;

  // `context`, `name_space`: empty for kubectl's own.
  Kubectl(asio::io_context& io, std::vector<std::string> environment, const std::string& context,
          const std::string& name_space);

  // Starts `kubectl words…` with this on its standard input. With `receive`, output is delivered as
  // it comes and not kept.
  [[nodiscard]] Result<void> start(const std::vector<std::string>& words, const std::string& input,
                                   Done done, Receive receive = nullptr);
  // One of this process's children ended.
  void child_ended(pid_t pid, int wait_status);
  // Reads no output of those started with `receive` while paused.
  void pause(bool paused);

 private:
  struct Child {
    std::vector<PipeReader> readers;
    std::string out;
    std::string err;
    Done done;
    bool streams = false;
  };

  asio::io_context& io_;
  std::vector<std::string> environment_;
  std::vector<std::string> words_;  // that every call begins with
  std::map<pid_t, Child> children_;
};

}  // namespace pushpull::launcher
