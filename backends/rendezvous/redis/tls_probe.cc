#include "backends/rendezvous/redis/tls_probe.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "backends/rendezvous/redis/redis_connection.h"

namespace pushpull::redis {

namespace {

constexpr uint8_t kAlert = 0x15;
constexpr uint8_t kHandshake = 0x16;

// The smallest ClientHello of TLS 1.2: record header (5 bytes), handshake header (4), version,
// 32 bytes of client random, no session, two cipher suites, no compression. The random may be
// constant: the handshake is never completed.
constexpr size_t kHelloSize = 5 + 4 + 2 + 32 + 1 + 2 + 4 + 2;

std::array<uint8_t, kHelloSize> client_hello() {
  std::array<uint8_t, kHelloSize> hello{};
  size_t at = 0;
  const auto put = [&](std::initializer_list<uint8_t> bytes) {
    for (const uint8_t byte : bytes) hello[at++] = byte;
  };
  put({kHandshake, 3, 1, 0, kHelloSize - 5});
  put({1, 0, 0, kHelloSize - 9});
  put({3, 3});
  at += 32;
  put({0});
  put({0, 4, 0xc0, 0x2f, 0xc0, 0x2b});  // ECDHE with AES-128-GCM, RSA and ECDSA
  put({1, 0});
  return hello;
}

}  // namespace

bool speaks_tls(int fd, Deadline deadline) {
  const auto hello = client_hello();
  if (::send(fd, hello.data(), hello.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(hello.size())) {
    return false;
  }
  std::array<uint8_t, 3> answer{};
  size_t have = 0;
  while (have < answer.size()) {
    const ssize_t got = ::recv(fd, answer.data() + have, answer.size() - have, 0);
    if (got > 0) {
      have += static_cast<size_t>(got);
    } else if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      return false;
    } else if (!wait_ready(fd, POLLIN, deadline)) {
      return false;
    }
  }
  // A record of a handshake or an alert, of any TLS version.
  return (answer[0] == kAlert || answer[0] == kHandshake) && answer[1] == 3 && answer[2] <= 4;
}

}  // namespace pushpull::redis
