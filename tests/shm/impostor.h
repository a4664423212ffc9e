// Processes that take part in the proof of shared memory and do something else than they should.
#pragma once

#include <string>

#include "core/group.h"
#include "core/net/socket.h"

namespace pushpull::testing {

// The name of the abstract Unix socket on which a group's first rank listens, without the zero byte in
// front, found among the sockets of this process. Empty where none listened before the deadline.
std::string listening_name(Deadline deadline);

// A socket bound to that name, listening; invalid where that cannot be.
Socket listen_at(const std::string& name);
// A blocking connection to that name.
Socket call_at(const std::string& name);

// The server's half of the hello on a new connection at `listener`, then `descriptor` and, when the other end
// has named its number, one byte of consent. Returns the connection.
Socket pretend_to_host(const Socket& listener, const Group& group, int descriptor);
// The client's half of the hello as `group.rank`; returns the connection and what came as memory.
struct Guest {
  Socket connection;
  Socket memory;
};
Guest pretend_to_be_guest(const std::string& name, const Group& group);

}  // namespace pushpull::testing
