// A TCP server on 127.0.0.1 that does what a test says, however wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/deadline.h"
#include "core/net/socket.h"

namespace pushpull::testing {

// One connection; every wait ends when the server is stopped.
class RawConnection {
 public:
  RawConnection(Socket socket, std::stop_token stop)
      : socket_(std::move(socket)), stop_(std::move(stop)) {}
  // To a server on 127.0.0.1; write() and read() fail where there is none.
  static RawConnection to(uint16_t port, std::stop_token stop);

  // Some bytes, empty at the end of the stream.
  std::string read();
  // The words of the next Redis command; empty at the end of the stream.
  std::vector<std::string> command();
  bool write(std::string_view bytes);
  // Closes so that the peer sees a reset.
  void reset();
  void close() { socket_.close(); }
  // Ends the stream, then resets: who writes after that gets EPIPE, and SIGPIPE.
  void break_pipe();
  // Holds the connection open, doing nothing, for as long as the server lives.
  void hold() const;

 private:
  bool fill();
  std::optional<std::string> line();

  Socket socket_;
  std::stop_token stop_;
  std::string buffer_;
};

class RawServer {
 public:
  // Called in a thread of its own for each connection, with how many there were before.
  using Handler = std::function<void(RawConnection&, int)>;

  explicit RawServer(Handler handler);
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;
  ~RawServer();

  uint16_t port() const { return port_; }
  std::string url() const;
  int connections() const { return count_; }

 private:
  void serve(const std::stop_token& stop);

  Handler handler_;
  Socket listener_;
  uint16_t port_ = 0;
  std::atomic<int> count_{0};
  std::list<std::jthread> workers_;  // touched by thread_ only until it is joined
  std::jthread thread_;
};

}  // namespace pushpull::testing
