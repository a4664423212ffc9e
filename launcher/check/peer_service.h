// What a rank answers to others that examine the way to it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/net/acceptor.h"

namespace pushpull::launcher {

// A request is one letter and a number of 8 bytes:
//   'T' 0  answered by this host's clock, nanoseconds since 1970, in 8 bytes
//   'D' n  n bytes follow; answered by 8 bytes when they are here
class PeerService {
 public:
  [[nodiscard]] static Result<std::unique_ptr<PeerService>> start(const std::string& address,
                                                                  const PortRange& ports,
                                                                  const std::string& secret,
                                                                  const std::string& run);
  ~PeerService();
  Endpoint endpoint() const { return acceptor_->endpoint(); }

 private:
  PeerService() = default;
  void serve(Socket socket, const std::stop_token& stop) const;

  std::unique_ptr<Acceptor> acceptor_;
  std::mutex mutex_;
  std::vector<std::jthread> threads_;  // one per connection
};

// The other side of one connection.
class PeerProbe {
 public:
  explicit PeerProbe(Socket socket) : socket_(std::move(socket)) {}

  // How far the other clock is ahead, by the quickest of a few round trips; nanoseconds.
  [[nodiscard]] Result<int64_t> clock_ahead(Deadline deadline) const;
  // Bytes per second to the other side, measured for about a third of a second.
  [[nodiscard]] Result<double> rate(Deadline deadline) const;

 private:
  Result<int64_t> ask(char letter, uint64_t number, Deadline deadline) const;

  Socket socket_;
};

}  // namespace pushpull::launcher
