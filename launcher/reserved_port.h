// A free TCP port that nobody else gets.
#pragma once

#include "core/error.h"
#include "core/net/endpoint.h"
#include "core/net/socket.h"

namespace pushpull::launcher {

// Kept as long as the object lives, without a race: its socket is bound but does not listen, so a
// server that sets SO_REUSEADDR and asks for this very port, as ours and Redis do, gets it, while
// the system chooses it for no one else.
class ReservedPort {
 public:
  // On the loopback interface.
  [[nodiscard]] static Result<ReservedPort> make();
  // On any IPv4 address of this host. The last free one of the range, since ranks take the first.
  [[nodiscard]] static Result<ReservedPort> make_in(const PortRange& ports);
  int number() const { return number_; }

 private:
  static Result<ReservedPort> try_port(uint32_t address, uint16_t number);
  Socket socket_;
  int number_ = 0;
};

}  // namespace pushpull::launcher
