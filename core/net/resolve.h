// Host names to numeric addresses, under a deadline.
#pragma once

#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/deadline.h"
#include "core/error.h"
#include "core/net/endpoint.h"

namespace pushpull {

// What connect and bind take.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  std::string host() const;  // numeric
  uint16_t port() const;
  std::string to_string() const;  // "127.0.0.1:29500"
};

// A numeric address; InvalidArgument for a name.
[[nodiscard]] Result<SocketAddress> numeric_address(const Endpoint& endpoint);

// Looks one name up, as often as asked. getaddrinfo blocks and cannot be cancelled, so it runs on a
// thread of its own that owns all it touches; one that is still at work when the NameLookup goes
// ends by itself, soon (its DNS time-outs are short), and there is never more than one per
// NameLookup.
class NameLookup {
 public:
  explicit NameLookup(Endpoint endpoint);

  // All addresses of the name, in the system's order. Unavailable where it does not resolve (now),
  // Timeout where no answer came until the deadline, Aborted once `cancelled` says so.
  [[nodiscard]] Result<std::vector<SocketAddress>> find(
      Deadline deadline, const std::function<bool()>& cancelled = {});

 private:
  struct Pending;
  Result<void> start();

  Endpoint endpoint_;
  std::shared_ptr<Pending> pending_;  // shared with the thread, which may outlive us
};

}  // namespace pushpull
