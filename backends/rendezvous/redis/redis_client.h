// A session with one Redis: connects, logs in, and asks again what may still become good.
#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>

#include "backends/rendezvous/redis/redis_connection.h"
#include "backends/rendezvous/redis/redis_error.h"
#include "backends/rendezvous/redis/redis_protocol.h"
#include "backends/rendezvous/redis/redis_url.h"
#include "core/deadline.h"
#include "core/error.h"
#include "core/net/resolve.h"

namespace pushpull::redis {

// Times between attempts: doubling from `first` to `most`, each shortened by up to half at random,
// so that ranks that failed together do not come back together.
class Backoff {
 public:
  Backoff(Duration first, Duration most) : next_(first), most_(most) {}

  // Sleeps, at most until the deadline; false where that has passed.
  bool sleep(Deadline deadline, std::minstd_rand& random);

 private:
  Duration next_;
  Duration most_;
};

// One thread at a time.
class RedisClient {
 public:
  explicit RedisClient(RedisTarget target);

  // Connects and logs in, unless that is done.
  [[nodiscard]] Result<void> connect(Deadline deadline);

  // Error replies are errors. The command may reach the server more than once, when its reply was
  // lost: it must be one that can be repeated. Timeout where the server stayed silent, Unavailable
  // where it could not be used for another reason until the deadline.
  [[nodiscard]] Result<Reply> call(const Command& command, Deadline deadline);
  // One attempt, nothing else: for what does not matter much.
  void try_once(const Command& command, Deadline deadline);

  // A password was accepted, or the server is on this host.
  bool trusted() const { return !target_.password.empty() || loopback_; }
  const std::string& description() const { return description_; }
  // For sentences about `command`.
  Question question(const Command& command) const;
  std::minstd_rand& random() { return random_; }

 private:
  // `command`: nullptr to connect only.
  Result<Reply> retry(const Command* command, Deadline deadline);
  Attempt<Reply> attempt(const Command* command, Deadline deadline);
  Attempt<void> log_in(Deadline deadline);
  bool is_tls_port(Deadline deadline);

  RedisTarget target_;
  std::string description_;
  NameLookup host_;
  std::optional<RedisConnection> connection_;
  bool loopback_ = false;
  std::minstd_rand random_;
};

}  // namespace pushpull::redis
