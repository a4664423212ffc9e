// A listener that hands out only authenticated connections, and the dialer that is its other half.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/deadline.h"
#include "core/error.h"
#include "core/log.h"
#include "core/net/endpoint.h"
#include "core/net/hello.h"
#include "core/net/socket.h"

namespace pushpull {

// Listens on one address, runs the server's half of the hello on every connection (all of them at
// once, each under a limit of 5 s, at most 1,024 unfinished or a quarter of the descriptors this
// process may have; the oldest unfinished one makes room) and calls `accepted` for those that pass.
// What fails is closed, counted and logged, at most one line a second, with its address. Runs a
// thread of its own, with all signals blocked. Thread-safe; to be destroyed by another thread than
// its own.
class Acceptor {
 public:
  // Called on the acceptor's thread with a non-blocking CLOEXEC socket; must not block.
  using Accepted = std::function<void(Hello, Socket)>;

  struct Options {
    std::string address = "127.0.0.1";  // numeric; "::" takes IPv4 as well
    PortRange ports;                    // the first free one is taken; {0, 0}: any
    std::string secret;
    ServerHandshake::Judge judge;  // on the acceptor's thread, must not block
    Accepted accepted;
    std::shared_ptr<Logger> logger;  // null: silent
  };

  // InvalidArgument where the address is not one of this host's, Unavailable where no port is free.
  [[nodiscard]] static Result<std::unique_ptr<Acceptor>> listen(Options options);
  virtual ~Acceptor() = default;  // stops and joins; nothing is called afterwards

  virtual Endpoint endpoint() const = 0;
  // Stops listening, at once, and drops unfinished connections; those handed out before live on.
  virtual void close() = 0;
  virtual uint64_t refused() const = 0;  // connections that failed their hello so far
  // In the child of a fork, where the thread does not exist, the descriptors are closed without
  // telling anybody, so that a child that lives on keeps neither port nor connections. Nothing may be
  // called there, not even the destructor.
};

// Resolves, connects and authenticates, trying again with backoff (10 ms doubling to 500 ms, with
// jitter) until the deadline while the name does not resolve yet, nobody listens, or the connection
// breaks during the hello. A refusal by the other side's judge is returned at once, as the code the
// judge gave; an authentication failure or a protocol version that differs too. One try takes at
// most 5 s. The final Timeout says what was seen last ("connection refused"). `cancelled` is asked
// before every try and every 50 ms, and ends it with Aborted. The socket is non-blocking, CLOEXEC,
// TCP_NODELAY.
[[nodiscard]] Result<Socket> dial(const Endpoint& endpoint, const std::string& secret,
                                  const Hello& hello, Deadline deadline,
                                  const std::function<bool()>& cancelled = {});

// Blocking helpers for non-blocking sockets with a deadline: the whole buffer or an error
// (Timeout, or PeerLost where the other end closed).
[[nodiscard]] Result<void> send_all(const Socket& socket, std::string_view bytes,
                                    Deadline deadline);
[[nodiscard]] Result<void> recv_all(const Socket& socket, void* to, size_t bytes,
                                    Deadline deadline);

}  // namespace pushpull
