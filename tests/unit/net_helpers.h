// What the tests of core/net share: a logger that remembers, and a bare TCP client for bad manners.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/log.h"
#include "core/net/acceptor.h"

namespace pushpull::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RecordingLogger final : public Logger {
 public:
  bool enabled(LogLevel) const override { return true; }
  void write(LogLevel, std::string_view line) override {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
  }
  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

// A connected blocking socket to a port of 127.0.0.1, with a receive time-out of 10 s.
inline Socket raw_connect(uint16_t port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket.fd(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return Socket();
  const timeval limit = {10, 0};
  setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  return socket;
}

// A bare listener on 127.0.0.1.
inline Socket raw_listen(uint16_t* port, int backlog = 16) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_port = htons(*port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  socklen_t size = sizeof(at);
  if (::bind(socket.fd(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
      ::listen(socket.fd(), backlog) != 0 ||
      getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&at), &size) != 0) {
    return Socket();
  }
  *port = ntohs(at.sin_port);
  return socket;
}

inline void raw_send(const Socket& socket, std::string_view bytes) {
  (void)!::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Everything until the other end closes or resets.
inline std::string raw_read_all(const Socket& socket) {
  std::string all;
  char buffer[4096];
  ssize_t got = 0;
  while ((got = ::recv(socket.fd(), buffer, sizeof(buffer), 0)) > 0) {
    all.append(buffer, static_cast<size_t>(got));
  }
  return all;
}

template <class Condition>
bool eventually(Condition condition, Duration limit = seconds(20)) {
  const Deadline deadline = deadline_in(limit);
  while (!condition()) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

inline Hello hello_of(int rank, Purpose purpose = Purpose::kData) {
  Hello hello;
  hello.purpose = purpose;
  hello.job = "job";
  hello.run = "run";
  hello.rank = rank;
  return hello;
}

// Runs `body` on a thread inside a network namespace of its own, which ends with it: a loopback
// interface and whatever `setup` (shell commands) adds. Skips where that is not permitted.
inline void in_network_namespace(const std::string& setup, const std::function<void()>& body) {
  bool entered = false;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) return;
    const std::string commands = "set -e; ip link set lo up; " + setup;
    if (std::system(("{ " + commands + "; } >/dev/null 2>&1").c_str()) != 0) return;
    entered = true;
    body();
  }).join();
  if (!entered) GTEST_SKIP() << "needs root and iproute2 for a network namespace: " << setup;
}

}  // namespace pushpull::testing
