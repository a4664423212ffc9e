// A free TCP port on the loopback interface that nobody else gets.
#pragma once

#include "core/error.h"
#include "core/net/socket.h"

namespace pushpull::launcher {

// Kept as long as the object lives, without a race: its socket is bound but does not listen, so a
// server that sets SO_REUSEADDR and asks for this very port, as ours and Redis do, gets it, while
// the system chooses it for no one else.
class ReservedPort {
 public:
  [[nodiscard]] static Result<ReservedPort> make();
  int number() const { return number_; }

 private:
  Socket socket_;
  int number_ = 0;
};

}  // namespace pushpull::launcher
