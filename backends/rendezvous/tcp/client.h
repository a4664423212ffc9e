// The other ranks' half of the TCP store.
#pragma once

#include <string>

#include "backends/rendezvous/tcp/caller.h"
#include "core/net/endpoint.h"
#include "core/net/hello.h"
#include "core/net/socket.h"

namespace pushpull::tcp_store {

// Connects when first needed, and again when the connection breaks; a request whose answer was lost
// is repeated, which the server recognises where it matters.
class Client : public Caller {
 public:
  Client(Endpoint server, std::string secret, const std::string& job);

  Result<std::optional<Reply>> call(const Request& request, Deadline deadline) override;

 private:
  Result<void> connect(Deadline deadline);
  Result<Reply> exchange(const std::string& frame, Deadline deadline);

  const Endpoint server_;
  const std::string secret_;
  Hello hello_;
  Socket socket_;
};

}  // namespace pushpull::tcp_store
