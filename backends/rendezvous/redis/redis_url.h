// Where a Redis is and who we are there.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/store.h"

namespace pushpull::redis {

struct RedisTarget {
  std::string host;  // name or numeric address, IPv6 without brackets
  uint16_t port = 6379;
  int database = 0;
  std::string user;      // empty: Redis's "default" user
  std::string password;  // empty: none

  // "redis://host:6379/0": for messages, without user and password.
  std::string description() const;
  // Whether AUTH is sent.
  bool has_login() const { return !user.empty() || !password.empty(); }
};

// redis://[user[:password]@]host[:port][/database], user and password percent-encoded where needed.
// User and password of the options win over the URL's. Messages never show what stands before '@'.
[[nodiscard]] Result<RedisTarget> parse_redis_url(const StoreOptions& options);

}  // namespace pushpull::redis
