// One TCP connection to a Redis. Every wait is a poll() under the caller's deadline.
#pragma once

#include <string_view>

#include "backends/rendezvous/redis/redis_error.h"
#include "backends/rendezvous/redis/redis_protocol.h"
#include "core/deadline.h"
#include "core/net/resolve.h"
#include "core/net/socket.h"

namespace pushpull::redis {

// Opens a TCP connection to the first of the host's addresses that accepts one.
struct Opened {
  Socket socket;
  bool loopback = false;  // the peer is this host
};
[[nodiscard]] Attempt<Opened> open_socket(NameLookup& host, const Question& question,
                                          Deadline deadline);

class RedisConnection {
 public:
  explicit RedisConnection(Opened opened)
      : socket_(std::move(opened.socket)), loopback_(opened.loopback) {}

  // Sends the command and waits for its reply; error replies are faults. After a fault with
  // `reconnect` the connection is of no more use.
  [[nodiscard]] Attempt<Reply> call(const Command& command, const Question& question,
                                    Deadline deadline);

  bool loopback() const { return loopback_; }
  // Whether the server has ever sent anything.
  bool answered() const { return answered_; }
  // False where the server has closed it, or sent something that nobody asked for.
  bool quiet() const;

 private:
  Attempt<void> send(std::string_view bytes, const Question& question, Deadline deadline);
  Attempt<void> receive(const Question& question, Deadline deadline);

  Socket socket_;
  ReplyReader reader_;
  bool loopback_ = false;
  bool answered_ = false;
};

// Waits until `fd` is ready for `events`; false when the deadline has passed.
[[nodiscard]] bool wait_ready(int fd, short events, Deadline deadline);

}  // namespace pushpull::redis
