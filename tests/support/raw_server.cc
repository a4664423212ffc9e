#include "tests/support/raw_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <chrono>

#include <fmt/format.h>

namespace pushpull::testing {

namespace {

using namespace std::chrono_literals;

constexpr int kSlice = 20;  // milliseconds between looks at the stop token

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

bool readable(int fd, const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    pollfd entry{fd, POLLIN, 0};
    if (poll(&entry, 1, kSlice) > 0) return true;
  }
  return false;
}

}  // namespace

RawConnection RawConnection::to(uint16_t port, std::stop_token stop) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  if (connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    socket.close();
  }
  return {std::move(socket), std::move(stop)};
}

std::string RawConnection::read() {
  if (buffer_.empty()) fill();
  return std::exchange(buffer_, {});
}

bool RawConnection::fill() {
  if (!socket_.valid() || !readable(socket_.fd(), stop_)) return false;
  std::array<char, 65536> bytes;
  const ssize_t got = recv(socket_.fd(), bytes.data(), bytes.size(), 0);
  if (got <= 0) return false;
  buffer_.append(bytes.data(), static_cast<size_t>(got));
  return true;
}

std::optional<std::string> RawConnection::line() {
  size_t end = 0;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (!fill()) return std::nullopt;
  }
  std::string text = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return text;
}

std::vector<std::string> RawConnection::command() {
  const auto header = line();
  if (!header || !header->starts_with('*')) return {};
  const int count = std::atoi(header->c_str() + 1);
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) {
    const auto length_line = line();
    if (!length_line || !length_line->starts_with('$')) return {};
    const size_t length = static_cast<size_t>(std::atoi(length_line->c_str() + 1));
    while (buffer_.size() < length + 2) {
      if (!fill()) return {};
    }
    words.push_back(buffer_.substr(0, length));
    buffer_.erase(0, length + 2);
  }
  return words;
}

bool RawConnection::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void RawConnection::reset() {
  const linger at_once{1, 0};
  setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  socket_.close();
}

void RawConnection::break_pipe() {
  shutdown(socket_.fd(), SHUT_WR);
  reset();
}

void RawConnection::hold() const {
  while (!stop_.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(kSlice));
}

RawServer::RawServer(Handler handler)
    : handler_(std::move(handler)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener_.fd(), generic, sizeof address) != 0 || listen(listener_.fd(), 128) != 0 ||
      getsockname(listener_.fd(), generic, &length) != 0) {
    return;  // port 0: the test cannot connect, and says so
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

RawServer::~RawServer() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

std::string RawServer::url() const { return fmt::format("redis://127.0.0.1:{}", port_); }

void RawServer::serve(const std::stop_token& stop) {
  while (readable(listener_.fd(), stop)) {
    Socket socket(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket.valid()) continue;
    const int before = count_++;
    workers_.emplace_back([this, before, stop, s = std::move(socket)]() mutable {
      RawConnection connection(std::move(s), stop);
      handler_(connection, before);
    });
  }
  workers_.clear();
}

}  // namespace pushpull::testing
