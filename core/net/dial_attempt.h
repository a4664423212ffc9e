// One try at an authenticated connection, without blocking: what dial() and the mesh are made of.
#pragma once

#include <poll.h>

#include <functional>
#include <optional>
#include <string>

#include "core/deadline.h"
#include "core/error.h"
#include "core/net/hello.h"
#include "core/net/resolve.h"
#include "core/net/socket.h"

namespace pushpull {

// Between tries: 10 ms doubling to 500 ms, the upper half of it at random.
class Backoff {
 public:
  Duration next();
  void reset() { last_ = {}; }

 private:
  Duration last_ = {};
};

// How long one try may take: a server that accepts and never answers, or a route that swallows
// packets, must not eat the whole deadline.
inline constexpr Duration kAttemptLimit = std::chrono::seconds(5);

class DialAttempt {
 public:
  DialAttempt(const SocketAddress& address, std::string secret, Hello hello, Deadline deadline);

  // Does what can be done now. true: finished, see error(). Call when wanted() is ready, and at
  // expires().
  bool advance();
  pollfd wanted() const;
  Deadline expires() const { return expires_; }

  // After the end: nullopt where it connected.
  const std::optional<Error>& error() const { return error_; }
  // Whether another try gets the same answer.
  bool hopeless() const { return hopeless_; }
  // What became of the hello, where it came so far.
  ClientHandshake::Failure failure() const { return handshake_.failure(); }
  // The connected socket: non-blocking, CLOEXEC, TCP_NODELAY.
  Socket take() { return std::move(socket_); }

 private:
  void start(const SocketAddress& address);
  void greet();
  bool flush();
  void give_up(ErrorCode code, std::string why);

  std::string where_;
  ClientHandshake handshake_;
  Deadline expires_;
  Socket socket_;
  bool connecting_ = false;
  bool hopeless_ = false;
  bool finished_ = false;
  std::optional<Error> error_;
};

// Blocks until the attempt is finished, or `cancelled` (asked every 50 ms) says so.
void finish(DialAttempt& attempt, const std::function<bool()>& cancelled = {});

// "60 s", "1.5 s", for messages.
std::string seconds_text(Duration duration);
// An errno as the tail of a sentence: "connection refused".
std::string errno_words(int error_number);

}  // namespace pushpull
