#include "backends/rendezvous/redis/redis_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>

#include "core/error.h"

namespace pushpull::redis {

namespace {

Attempt<Socket> connect_to(const SocketAddress& address, const Question& question, Deadline deadline) {
  Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto failed = [&](int error) {
    return tl::unexpected(unreachable_fault(question, errno_text(error)));
  };
  if (!socket.valid()) return failed(errno);
  if (::connect(socket.fd(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return failed(errno);
    if (!wait_ready(socket.fd(), POLLOUT, deadline)) return tl::unexpected(silent_fault(question));
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    if (error != 0) return failed(error);
  }
  const int on = 1;
  setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

// An equal share of the time left for each of the addresses not tried yet: the first may be one
// that swallows packets.
Deadline share(Deadline deadline, size_t addresses_left) {
  if (deadline == never()) return deadline;
  const auto left = deadline - Clock::now();
  return Clock::now() + left / static_cast<Duration::rep>(addresses_left);
}

}  // namespace

bool wait_ready(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int left = milliseconds_left(deadline);
    const int ready = ::poll(&entry, 1, left);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return true;  // the call that follows says what is wrong
    if (left == 0) return false;
  }
}

Attempt<Opened> open_socket(NameLookup& host, const Question& question, Deadline deadline) {
  const auto addresses = host.find(deadline);
  if (!addresses) return tl::unexpected(unresolved_fault(question, addresses.error()));
  std::optional<Fault> last;
  for (size_t i = 0; i < addresses->size(); ++i) {
    const SocketAddress& address = (*addresses)[i];
    auto socket = connect_to(address, question, share(deadline, addresses->size() - i));
    if (socket) return Opened{std::move(*socket), is_loopback(address.host())};
    last = std::move(socket.error());
  }
  return tl::unexpected(std::move(*last));
}

bool RedisConnection::quiet() const {
  char byte = 0;
  const ssize_t got = ::recv(socket_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

Attempt<void> RedisConnection::send(std::string_view bytes, const Question& question,
                                    Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_ready(socket_.fd(), POLLOUT, deadline)) {
        return tl::unexpected(silent_fault(question));
      }
    } else if (errno != EINTR) {
      return tl::unexpected(broken_fault(question, "closed the connection"));
    }
  }
  return {};
}

Attempt<void> RedisConnection::receive(const Question& question, Deadline deadline) {
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t got = ::recv(socket_.fd(), buffer.data(), buffer.size(), 0);
    if (got > 0) {
      answered_ = true;
      if (reader_.feed({buffer.data(), static_cast<size_t>(got)})) return {};
      return tl::unexpected(not_redis_fault(question, reader_.head()));
    }
    if (got == 0) return tl::unexpected(broken_fault(question, "closed the connection"));
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_ready(socket_.fd(), POLLIN, deadline)) {
        return tl::unexpected(silent_fault(question));
      }
    } else if (errno != EINTR) {
      return tl::unexpected(
          broken_fault(question, "closed the connection (" + errno_text(errno) + ")"));
    }
  }
}

Attempt<Reply> RedisConnection::call(const Command& command, const Question& question,
                                     Deadline deadline) {
  const std::string bytes = encode(command);
  if (bytes.empty()) {
    return tl::unexpected(Fault{Error(ErrorCode::kUnavailable, "no memory for a Redis command")});
  }
  // What is received next answers this command, so a failed send may still be explained by an
  // error reply that came before the connection was closed ("max number of clients reached").
  const auto sent = send(bytes, question, deadline);
  for (;;) {
    const auto received = receive(question, deadline);
    if (!received) return tl::unexpected(sent ? received.error() : sent.error());
    bool sane = false;
    auto reply = reader_.next(sane);
    if (!sane) return tl::unexpected(not_redis_fault(question, reader_.head()));
    if (!reply && Clock::now() < deadline) continue;
    if (!reply) return tl::unexpected(silent_fault(question));
    if (reply->kind != Reply::Kind::kError) return std::move(*reply);
    Fault fault = reply_fault(reply->text, question);
    fault.reconnect = !sent;
    return tl::unexpected(std::move(fault));
  }
}

}  // namespace pushpull::redis
