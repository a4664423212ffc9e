// Host names to addresses, under a deadline.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tl/expected.hpp>

#include "core/deadline.h"

namespace pushpull::redis {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  bool loopback() const;  // 127.0.0.0/8 and ::1, also as ::ffff:127.x.x.x
};

// getaddrinfo cannot be interrupted, so it runs in a thread that is left alone when the deadline
// passes; a question that is still open is taken up again by the next call instead of asked anew.
class Resolver {
 public:
  struct Failure {
    bool timed_out = false;
    std::string reason;  // "Name or service not known"
  };

  // Numeric addresses need no thread. `host` and `port` are the same in every call.
  [[nodiscard]] tl::expected<std::vector<Address>, Failure> resolve(const std::string& host,
                                                                    uint16_t port,
                                                                    Deadline deadline);

 private:
  struct Pending;
  std::shared_ptr<Pending> pending_;
};

}  // namespace pushpull::redis
