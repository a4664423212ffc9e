// Connections between shims and launcher notice when the other host is gone.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "core/net/socket.h"

namespace pushpull::launcher {

// The connection breaks when the other end was silent for about 25 s, or sent data were not
// acknowledged for as long. Where the system does not offer that, the starter's word has to do.
inline void keep_alive(const Socket& socket) {
  const auto set = [&](int level, int option, int value) {
    (void)setsockopt(socket.fd(), level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 25000);
}

}  // namespace pushpull::launcher
