// What the tests of the Redis store share.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/deadline.h"
#include "core/registry.h"
#include "core/store.h"
#include "tests/support/redis_server.h"

namespace pushpull::testing {

using namespace std::chrono_literals;

// For what is expected to succeed.
inline Deadline soon() { return deadline_in(30s); }

// How far past its deadline a call may end: a bound against hanging, wide enough for a busy
// machine.
inline constexpr Duration kSlack = 2s;
// What fails "at once" ends within this, although its deadline is soon().
inline constexpr Duration kAtOnce = 5s;

class RedisTest : public ::testing::Test {
 protected:
  // A store for `url`; a test failure and nullptr where it cannot be opened.
  std::unique_ptr<Store> open(StoreOptions options, Deadline deadline = soon());
  std::unique_ptr<Store> open(const RedisServer& server) { return open(options(server)); }
  // The error of opening it; a test failure where it can be opened.
  Error refusal(StoreOptions options, Deadline deadline = soon());

  static StoreOptions options(const RedisServer& server);
  static StoreOptions options(std::string url, std::string user = {}, std::string password = {});
  static std::unique_ptr<RedisServer> start(RedisServerOptions options = {});

  Registry registry_;
};

// Runs `body` and expects it to end by `deadline` plus kSlack.
template <class Body>
auto in_time(Deadline deadline, const Body& body) {
  auto result = body();
  EXPECT_LT(Clock::now(), deadline + kSlack);
  return result;
}

// Expects a failure of this code whose sentence has all these parts.
template <class T>
void expect_error(const Result<T>& result, ErrorCode code, const std::vector<std::string>& parts) {
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(to_string(result.error().code()), to_string(code)) << result.error().message();
  for (const std::string& part : parts) {
    EXPECT_NE(result.error().message().find(part), std::string::npos)
        << "'" << part << "' is not in: " << result.error().message();
  }
}

}  // namespace pushpull::testing
