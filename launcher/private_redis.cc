#include "launcher/private_redis.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include <fmt/format.h>

#include "core/deadline.h"
#include "core/net/socket.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

using namespace std::chrono_literals;

bool accepts_connections(int port) {
  const Socket probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(probe.fd(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// What the server said, for an error: its last line.
std::string last_line(int fd) {
  std::string text(4096, '\0');
  const ssize_t n = read(fd, text.data(), text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
}

Result<pid_t> spawn_with_input(const Process& process, const Socket& output) {
  auto input = make_pipe();
  if (!input) return fail(input.error());
  SpawnOptions options;
  options.argv = process.argv;
  options.environment = process.environment;
  options.input = input->read.fd();
  options.output = options.error = output.fd();
  auto pid = spawn(options);
  if (!pid) return pid;
  // Far less than a pipe holds, so it cannot block.
  const std::string& text = process.input_text;
  if (write(input->write.fd(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return fail(ErrorCode::kUnavailable, "the private Redis server did not take its configuration");
  }
  return pid;
}

}  // namespace

Result<PrivateRedis> PrivateRedis::start(const Process& process, int port) {
  auto output = make_pipe();
  if (!output) return fail(output.error());
  const auto pid = spawn_with_input(process, output->write);
  if (!pid) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("the private Redis server cannot be started: {}; install Debian package "
                    "redis-server, or give --rendezvous the URL of a server",
                    pid.error().message()));
  }
  PrivateRedis redis(*pid);
  const Deadline deadline = deadline_in(10s);
  while (!accepts_connections(port)) {
    const bool ended = waitpid(*pid, nullptr, WNOHANG) == *pid;
    if (ended) redis.forget();
    if (ended || Clock::now() > deadline) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("the private Redis server did not come up on port {}: {}", port,
                              last_line(output->read.fd())));
    }
    std::this_thread::sleep_for(5ms);
  }
  return redis;
}

void PrivateRedis::end() {
  if (pid_ <= 0) return;
  kill(pid_, SIGTERM);
  const Deadline kill_at = deadline_in(2s);
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (Clock::now() > kill_at) kill(pid_, SIGKILL);
    std::this_thread::sleep_for(5ms);
  }
  pid_ = -1;
}

}  // namespace pushpull::launcher
