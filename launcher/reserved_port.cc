#include "launcher/reserved_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include <fmt/format.h>

namespace pushpull::launcher {

Result<ReservedPort> ReservedPort::make() {
  ReservedPort port;
  port.socket_ = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int fd = port.socket_.fd();
  if (!port.socket_.valid() || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd, generic, sizeof(address)) != 0 || getsockname(fd, generic, &length) != 0) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("no port can be had on the loopback interface: {}", errno_text(errno)));
  }
  port.number_ = ntohs(address.sin_port);
  return port;
}

}  // namespace pushpull::launcher
