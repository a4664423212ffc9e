#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include <fmt/format.h>

#include "core/net/acceptor.h"
#include "core/net/dial_attempt.h"

namespace pushpull {
namespace {

using std::chrono::milliseconds;

// How often a blocking wait asks whether it was cancelled.
constexpr int kCancelSlice = 50;

// A connect to a free port of this host can meet itself, and then occupies the port it waits for.
bool connected_to_itself(int fd) {
  SocketAddress local;
  SocketAddress remote;
  local.length = sizeof(local.storage);
  remote.length = sizeof(remote.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local.storage), &local.length) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&remote.storage), &remote.length) != 0) {
    return false;
  }
  return local.port() == remote.port() && local.host() == remote.host();
}

}  // namespace

std::string seconds_text(Duration duration) {
  const double seconds = std::max(0.0, std::chrono::duration<double>(duration).count());
  std::string text = fmt::format("{:.1f}", seconds);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text + " s";
}

std::string errno_words(int error_number) {
  std::string text = errno_text(error_number);
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

Duration Backoff::next() {
  constexpr Duration kFirst = milliseconds(10);
  constexpr Duration kMost = milliseconds(500);
  last_ = last_ == Duration::zero() ? kFirst : std::min(last_ * 2, kMost);
  std::random_device random;
  return last_ / 2 + last_ / 2 * (random() % 1000) / 1000;
}

// ---- one attempt ----

DialAttempt::DialAttempt(const SocketAddress& address, std::string secret, Hello hello,
                         Deadline deadline)
    : where_(address.to_string()),
      handshake_(std::move(secret), std::move(hello)),
      expires_(std::min(deadline, deadline_in(kAttemptLimit))) {
  start(address);
}

void DialAttempt::start(const SocketAddress& address) {
  socket_ = Socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.valid()) return give_up(ErrorCode::kUnavailable, errno_words(errno));
  const int on = 1;
  setsockopt(socket_.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  connecting_ = true;
  if (::connect(socket_.fd(), address.get(), address.length) == 0) {
    connecting_ = false;
  } else if (errno != EINPROGRESS && errno != EINTR) {
    give_up(ErrorCode::kUnavailable, errno_words(errno));
  }
}

pollfd DialAttempt::wanted() const {
  return {socket_.fd(), static_cast<short>(connecting_ ? POLLOUT : POLLIN), 0};
}

bool DialAttempt::advance() {
  if (finished_) return true;
  if (connecting_) {
    pollfd ready = wanted();
    if (::poll(&ready, 1, 0) > 0) {
      int failed = 0;
      socklen_t size = sizeof(failed);
      getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &failed, &size);
      if (failed != 0) {
        give_up(ErrorCode::kUnavailable, errno_words(failed));
      } else if (connected_to_itself(socket_.fd())) {
        const linger reset = {1, 0};  // or the port would rest in TIME_WAIT
        setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        give_up(ErrorCode::kUnavailable, errno_words(ECONNREFUSED));
      } else {
        connecting_ = false;
      }
    }
  }
  if (!finished_ && !connecting_) greet();
  if (!finished_ && Clock::now() >= expires_) {
    give_up(ErrorCode::kTimeout,
            connecting_ ? errno_words(ETIMEDOUT) : "the other end accepts and does not answer");
  }
  return finished_;
}

void DialAttempt::greet() {
  char buffer[kMaxHelloBytes];
  while (!handshake_.finished()) {
    const size_t wanted = std::min(handshake_.wanted(), sizeof(buffer));
    const ssize_t got = ::recv(socket_.fd(), buffer, wanted, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      return give_up(ErrorCode::kPeerLost,
                     got == 0 ? "the connection was closed during the hello" : errno_words(errno));
    }
    const auto fed = handshake_.feed(std::string_view(buffer, static_cast<size_t>(got)));
    if (!fed) {
      hopeless_ = handshake_.failure() != ClientHandshake::Failure::kBroken;
      finished_ = true;
      error_ = handshake_.failure() == ClientHandshake::Failure::kSecret
                   ? fed.error().with_context(where_)
                   : fed.error();
      return socket_.close();
    }
    if (!flush()) return;
  }
  finished_ = true;
}

// The hello fits into an empty socket buffer, so a partial send is a broken connection.
bool DialAttempt::flush() {
  std::string& bytes = handshake_.output();
  if (bytes.empty()) return true;
  const ssize_t sent = ::send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(bytes.size())) {
    give_up(ErrorCode::kPeerLost, sent < 0 ? errno_words(errno) : "the hello could not be sent");
    return false;
  }
  bytes.clear();
  return true;
}

void DialAttempt::give_up(ErrorCode code, std::string why) {
  finished_ = true;
  error_ = Error(code, std::move(why));
  socket_.close();
}

// ---- dial ----

void finish(DialAttempt& attempt, const std::function<bool()>& cancelled) {
  while (!attempt.advance()) {
    if (cancelled && cancelled()) return;
    pollfd ready = attempt.wanted();
    const int cap = cancelled ? kCancelSlice : 60'000;
    ::poll(&ready, 1, milliseconds_left(attempt.expires(), cap));
  }
}

namespace {

bool sleep_for(Duration duration, Deadline deadline, const std::function<bool()>& cancelled) {
  const Deadline until = std::min(deadline, deadline_in(duration));
  while (Clock::now() < until) {
    if (cancelled && cancelled()) return false;
    std::this_thread::sleep_for(milliseconds(milliseconds_left(until, kCancelSlice)));
  }
  return true;
}

}  // namespace

Result<Socket> dial(const Endpoint& endpoint, const std::string& secret, const Hello& hello,
                    Deadline deadline, const std::function<bool()>& cancelled) {
  if (endpoint.host.empty() || endpoint.port == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not an address to connect to", endpoint.to_string()));
  }
  const auto began = Clock::now();
  NameLookup lookup(endpoint);
  Backoff backoff;
  std::string last;
  const auto is_cancelled = [&] { return cancelled && cancelled(); };
  const auto too_late = [&] {
    return fail(ErrorCode::kTimeout,
                fmt::format("cannot connect to {} within {}: {}", endpoint.to_string(),
                            seconds_text(deadline - began), last));
  };
  while (!is_cancelled()) {
    auto addresses = lookup.find(std::min(deadline, deadline_in(kAttemptLimit)), cancelled);
    if (!addresses) last = addresses.error().message();
    for (const SocketAddress& address : addresses ? *addresses : std::vector<SocketAddress>()) {
      DialAttempt attempt(address, secret, hello, deadline);
      finish(attempt, cancelled);
      if (is_cancelled()) break;
      if (!attempt.error()) return attempt.take();
      if (attempt.hopeless()) return fail(*attempt.error());
      last = attempt.error()->message();
    }
    if (Clock::now() >= deadline) return too_late();
    if (!sleep_for(backoff.next(), deadline, cancelled)) break;
    if (Clock::now() >= deadline) return too_late();
  }
  return fail(ErrorCode::kAborted,
              fmt::format("connecting to {} was cancelled", endpoint.to_string()));
}

// ---- blocking helpers ----

namespace {

Result<void> wait_until_ready(int fd, short events, Deadline deadline, std::string_view what) {
  pollfd ready = {fd, events, 0};
  if (::poll(&ready, 1, milliseconds_left(deadline)) < 0 && errno != EINTR) {
    return fail(ErrorCode::kUnavailable, fmt::format("poll failed: {}", errno_words(errno)));
  }
  if (ready.revents == 0 && Clock::now() >= deadline) {
    return fail(ErrorCode::kTimeout, fmt::format("the other end {} in time", what));
  }
  return {};
}

tl::unexpected<Error> lost(int error_number) {
  return fail(ErrorCode::kPeerLost, fmt::format("the connection is lost: {}",
                                                error_number == 0 ? "the other end closed it"
                                                                  : errno_words(error_number)));
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Result<void> send_all(const Socket& socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (!would_block()) return lost(errno);
    auto ready = wait_until_ready(socket.fd(), POLLOUT, deadline, "took nothing more");
    if (!ready) return ready;
  }
  return {};
}

Result<void> recv_all(const Socket& socket, void* to, size_t bytes, Deadline deadline) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket.fd(), at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= static_cast<size_t>(got);
      continue;
    }
    if (got == 0) return lost(0);
    if (!would_block()) return lost(errno);
    auto ready = wait_until_ready(socket.fd(), POLLIN, deadline, "did not answer");
    if (!ready) return ready;
  }
  return {};
}

}  // namespace pushpull
