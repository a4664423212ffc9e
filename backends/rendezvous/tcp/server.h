// Rank 0's half of the TCP store: serves one table over authenticated connections.
#pragma once

#include <memory>
#include <string>

#include "backends/rendezvous/tcp/caller.h"
#include "core/net/endpoint.h"

namespace pushpull::tcp_store {

struct ServerOptions {
  std::string job;
  std::string secret;
  std::string address;      // numeric, to listen on
  uint16_t port = 0;        // 0: any
  Duration time_to_live{};  // of what is stored
};

// Event driven, on one thread beside the listener's; it ends with the object. call() is for rank 0
// itself, one thread at a time.
class Server : public Caller {
 public:
  // Unavailable where the port is taken: the sentence says by whom, as far as a hello can tell. The
  // server of an earlier run of the same job is waited for, 10 s at most.
  [[nodiscard]] static Result<std::unique_ptr<Server>> start(const ServerOptions& options,
                                                             Deadline deadline);
  virtual Endpoint endpoint() const = 0;
};

}  // namespace pushpull::tcp_store
