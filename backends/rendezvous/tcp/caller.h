// Who carries a request of the TCP store to its table: the network, or nobody (on rank 0 itself).
#pragma once

#include <optional>

#include "backends/rendezvous/tcp/protocol.h"
#include "core/deadline.h"
#include "core/error.h"

namespace pushpull::tcp_store {

class Caller {
 public:
  virtual ~Caller() = default;
  // The reply; nullopt where the deadline passed while the request was with the server; an error
  // where it did not get there.
  [[nodiscard]] virtual Result<std::optional<Reply>> call(const Request& request,
                                                          Deadline deadline) = 0;
};

}  // namespace pushpull::tcp_store
