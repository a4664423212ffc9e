#include "launcher/reserved_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include <fmt/format.h>

namespace pushpull::launcher {

Result<ReservedPort> ReservedPort::try_port(uint32_t address, uint16_t number) {
  ReservedPort port;
  port.socket_ = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(address);
  place.sin_port = htons(number);
  socklen_t length = sizeof(place);
  auto* generic = reinterpret_cast<sockaddr*>(&place);
  const int fd = port.socket_.fd();
  if (!port.socket_.valid() || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd, generic, sizeof(place)) != 0 || getsockname(fd, generic, &length) != 0) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("no free port can be had: {}", errno_text(errno)));
  }
  port.number_ = ntohs(place.sin_port);
  return port;
}

Result<ReservedPort> ReservedPort::make() { return try_port(INADDR_LOOPBACK, 0); }

Result<ReservedPort> ReservedPort::make_in(const PortRange& ports) {
  auto port = try_port(INADDR_ANY, ports.last);
  for (int number = ports.last - 1; !port && number >= ports.first && number > 0; --number) {
    port = try_port(INADDR_ANY, static_cast<uint16_t>(number));
  }
  return port;
}

}  // namespace pushpull::launcher
