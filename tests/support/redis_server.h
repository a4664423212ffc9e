// A real redis-server for a test, on a free port of 127.0.0.1, in a directory of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/support/process.h"

namespace pushpull::testing {

struct RedisServerOptions {
  std::string password;             // of the default user; empty: none
  std::vector<std::string> config;  // further lines of redis.conf
  bool tls = false;                 // the port speaks TLS, with a certificate made for the test
};

class RedisServer {
 public:
  enum class Until { kReady, kListening };  // listening: it may still be loading its data

  // Unavailable where there is no redis-server: a failure of the test, never a reason to skip it.
  [[nodiscard]] static Result<std::unique_ptr<RedisServer>> start(RedisServerOptions options = {});
  // A port nobody listens at, with the address kept for a later start_at().
  [[nodiscard]] static Result<std::unique_ptr<RedisServer>> reserve(
      RedisServerOptions options = {});

  uint16_t port() const { return port_; }
  // "redis://127.0.0.1:port", without user and password.
  std::string url() const;
  const std::string& password() const { return options_.password; }
  const std::string& directory() const { return directory_.path(); }

  // What redis-cli prints for a command, without the last line end.
  std::string cli(std::vector<std::string> words) const;
  // How many commands of this kind ("get", "eval") it has run.
  int64_t calls(const std::string& command) const;

  void kill() { process_.kill(); }
  // Starts it again on its port with its directory; empty unless it saved.
  [[nodiscard]] Result<void> start_again(Until until = Until::kReady);
  // A paused server accepts connections (the kernel does) and answers nothing.
  void pause() const;
  void resume() const;

 private:
  explicit RedisServer(RedisServerOptions options) : options_(std::move(options)) {}
  Result<void> write_config() const;
  Result<void> make_certificate() const;
  std::string file(const std::string& name) const { return directory_.path() + "/" + name; }

  RedisServerOptions options_;
  TemporaryDirectory directory_;
  uint16_t port_ = 0;
  Process process_;
};

// A port of 127.0.0.1 that was free a moment ago; 0 where there is none.
uint16_t free_port();

}  // namespace pushpull::testing
