#include "tests/support/redis_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <charconv>
#include <chrono>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "core/deadline.h"
#include "core/net/socket.h"

namespace pushpull::testing {

namespace {

using namespace std::chrono_literals;

constexpr Duration kStartLimit = 20s;
constexpr int kPortTries = 10;

Result<std::string> run(const std::vector<std::string>& words, const std::string& output,
                        const std::map<std::string, std::string>& environment = {}) {
  auto process = Process::start(words, output, environment);
  if (!process) return fail(process.error());
  const int status = process->wait();
  std::string text = read_file(output);
  if (status == 0) return text;
  return fail(ErrorCode::kUnavailable, fmt::format("{} failed: {}", words.front(), text));
}

}  // namespace

uint16_t free_port() {
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(socket.fd(), generic, sizeof address) != 0) return 0;
  if (getsockname(socket.fd(), generic, &length) != 0) return 0;
  return ntohs(address.sin_port);
}

Result<std::unique_ptr<RedisServer>> RedisServer::reserve(RedisServerOptions options) {
  std::unique_ptr<RedisServer> server(new RedisServer(std::move(options)));
  server->port_ = free_port();
  if (server->options_.tls) {
    if (auto made = server->make_certificate(); !made) return fail(made.error());
  }
  return server;
}

Result<std::unique_ptr<RedisServer>> RedisServer::start(RedisServerOptions options) {
  auto server = reserve(std::move(options));
  if (!server) return server;
  // Another process may take the port between our look and the server's start.
  for (int tries = 1;; ++tries) {
    auto started = (*server)->start_again();
    if (started) return server;
    if (tries == kPortTries) return fail(started.error());
    (*server)->port_ = free_port();
  }
}

Result<void> RedisServer::write_config() const {
  std::ofstream config(file("redis.conf"));
  fmt::print(config, "bind 127.0.0.1 -::1\ndir {}\nlogfile {}\n", directory_.path(),
             file("redis.log"));
  fmt::print(config, "save \"\"\nappendonly no\nenable-debug-command yes\n");
  if (options_.tls) {
    fmt::print(config, "port 0\ntls-port {}\ntls-auth-clients no\n", port_);
    fmt::print(config, "tls-cert-file {0}/cert.pem\ntls-key-file {0}/key.pem\n", directory_.path());
    fmt::print(config, "tls-ca-cert-file {}/cert.pem\n", directory_.path());
  } else {
    fmt::print(config, "port {}\n", port_);
  }
  if (!options_.password.empty()) fmt::print(config, "requirepass \"{}\"\n", options_.password);
  for (const std::string& line : options_.config) fmt::print(config, "{}\n", line);
  config.close();
  if (!config) return fail(ErrorCode::kUnavailable, "cannot write " + file("redis.conf"));
  return {};
}

Result<void> RedisServer::make_certificate() const {
  auto made = run({"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                   "-subj", "/CN=localhost", "-keyout", file("key.pem"), "-out", file("cert.pem")},
                  file("openssl.log"));
  if (!made) return fail(made.error());
  return {};
}

Result<void> RedisServer::start_again(Until until) {
  process_.kill();
  if (auto written = write_config(); !written) return written;
  // Its own log tells; an answer at the port could be another server's.
  std::ofstream(file("redis.log"), std::ios::trunc).close();
  auto process = Process::start({"redis-server", file("redis.conf")}, file("output.log"));
  if (!process) return fail(process.error());
  process_ = std::move(*process);
  const std::string sign =
      until == Until::kReady ? "Ready to accept connections" : "Server initialized";
  const Deadline deadline = deadline_in(kStartLimit);
  while (Clock::now() < deadline) {
    if (read_file(file("redis.log")).find(sign) != std::string::npos) return {};
    if (!process_.running()) break;
    std::this_thread::sleep_for(5ms);
  }
  process_.kill();
  return fail(ErrorCode::kUnavailable,
              fmt::format("redis-server did not start: {}{}", read_file(file("output.log")),
                          read_file(file("redis.log"))));
}

std::string RedisServer::url() const { return fmt::format("redis://127.0.0.1:{}", port_); }

std::string RedisServer::cli(std::vector<std::string> words) const {
  // Each call has a file of its own: tests call from several threads.
  const TemporaryDirectory scratch;
  std::vector<std::string> all{"redis-cli", "-p", std::to_string(port_), "--no-auth-warning"};
  all.insert(all.end(), words.begin(), words.end());
  std::map<std::string, std::string> environment;
  if (!options_.password.empty()) environment["REDISCLI_AUTH"] = options_.password;
  auto text = run(all, scratch.path() + "/out", environment);
  if (!text) return text.error().message();
  while (text->ends_with('\n')) text->pop_back();
  return *text;
}

int64_t RedisServer::calls(const std::string& command) const {
  const std::string stats = cli({"INFO", "commandstats"});
  const std::string start = fmt::format("cmdstat_{}:calls=", command);
  const size_t at = stats.find(start);
  if (at == std::string::npos) return 0;
  int64_t count = 0;
  std::from_chars(stats.data() + at + start.size(), stats.data() + stats.size(), count);
  return count;
}

void RedisServer::pause() const { process_.signal(SIGSTOP); }
void RedisServer::resume() const { process_.signal(SIGCONT); }

}  // namespace pushpull::testing
