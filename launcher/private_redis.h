// A Redis server of the job's own, a child of this process.
#pragma once

#include <sys/types.h>

#include <optional>

#include "core/error.h"
#include "launcher/output.h"
#include "launcher/plan.h"

namespace pushpull::launcher {

class PrivateRedis {
 public:
  // Returns when it accepts connections. Unavailable, with what to do, if it does not come up.
  [[nodiscard]] static Result<PrivateRedis> start(const Process& process, int port);
  PrivateRedis(PrivateRedis&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~PrivateRedis() { end(); }

  pid_t pid() const { return pid_; }
  // It has ended by itself.
  void forget() { pid_ = -1; }
  void end();

 private:
  explicit PrivateRedis(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

}  // namespace pushpull::launcher
