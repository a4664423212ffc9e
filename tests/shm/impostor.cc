#include "tests/shm/impostor.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/net/hello.h"

namespace pushpull::testing {
namespace {

constexpr char kPrefix[] = "@pushpull-";

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

Address address_of(const std::string& name) {
  Address address;
  address.name.sun_family = AF_UNIX;
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

// Whether the last word of a line of /proc/net/unix, the inode, is a socket of this process.
bool is_ours(const std::string& line) {
  const std::string socket = "socket:[" + line.substr(line.rfind(' ') + 1) + "]";
  std::error_code error;
  for (std::filesystem::directory_iterator fd("/proc/self/fd", error), end; !error && fd != end;
       fd.increment(error))
    if (std::filesystem::read_symlink(fd->path(), error) == socket) return true;
  return false;
}

void limit_waits(const Socket& socket) {
  const timeval limit{10, 0};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

template <class Handshake>
bool shake(const Socket& socket, Handshake& hello) {
  std::array<char, kMaxHelloBytes> buffer;
  for (;;) {
    if (!hello.output().empty())
      ::send(socket.fd(), hello.output().data(), hello.output().size(), MSG_NOSIGNAL);
    hello.output().clear();
    if (hello.finished()) return true;
    const ssize_t got = ::recv(socket.fd(), buffer.data(), hello.wanted(), 0);
    if (got <= 0 || !hello.feed({buffer.data(), static_cast<size_t>(got)})) return false;
  }
}

}  // namespace

std::string listening_name(Deadline deadline) {
  while (Clock::now() < deadline) {
    std::ifstream sockets("/proc/net/unix");
    for (std::string line; std::getline(sockets, line);) {
      const size_t at = line.find(kPrefix);
      if (at == std::string::npos || !is_ours(line.substr(0, at - 1))) continue;
      return line.substr(at + 1);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return {};
}

Socket listen_at(const std::string& name) {
  Socket listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address address = address_of(name);
  if (::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0 ||
      ::listen(listener.fd(), 8) != 0)
    return {};
  limit_waits(listener);
  return listener;
}

Socket call_at(const std::string& name) {
  Socket socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address address = address_of(name);
  limit_waits(socket);
  if (::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address.name), address.length) != 0)
    return {};
  return socket;
}

Socket pretend_to_host(const Socket& listener, const Group& group, int descriptor) {
  Socket connection(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection.valid()) return {};
  limit_waits(connection);
  ServerHandshake hello(group.secret, [](const Hello&) -> Result<void> { return {}; });
  if (!shake(connection, hello)) return {};

  char byte = 1;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  ::sendmsg(connection.fd(), &message, MSG_NOSIGNAL);
  uint64_t number = 0;
  if (::recv(connection.fd(), &number, sizeof number, MSG_WAITALL) == sizeof number)
    ::send(connection.fd(), &byte, 1, MSG_NOSIGNAL);
  return connection;
}

Guest pretend_to_be_guest(const std::string& name, const Group& group) {
  Guest guest{call_at(name), {}};
  Hello mine;
  mine.purpose = Purpose::kData;
  mine.job = group.job;
  mine.run = group.run;
  mine.rank = group.rank;
  ClientHandshake hello(group.secret, std::move(mine));
  if (!guest.connection.valid() || !shake(guest.connection, hello)) return guest;

  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (::recvmsg(guest.connection.fd(), &message, MSG_CMSG_CLOEXEC) != 1) return guest;
  if (const cmsghdr* const header = CMSG_FIRSTHDR(&message)) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    guest.memory = Socket(descriptor);
  }
  return guest;
}

}  // namespace pushpull::testing
