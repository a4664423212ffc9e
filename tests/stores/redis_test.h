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

// How far past its deadline a call may end: a bound against hanging. On a machine with many more
// threads than processors any thread may rest for seconds.
inline constexpr Duration kSlack = 8s;
// What fails "at once" ends within this, although its deadline is soon().
inline constexpr Duration kAtOnce = 15s;

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

// The error of what is expected to fail.
template <class T>
Error error_of(const Result<T>& result) {
  EXPECT_FALSE(result.has_value());
  return result ? Error(ErrorCode::kAborted, "it succeeded") : result.error();
}

// The error of ask(deadline), which is expected to end within `limit`. Where a busy machine left it
// no time to see what the test is about, it is asked again, a few times.
template <class Ask>
Error error_within(Duration limit, const std::string& about, const Ask& ask) {
  for (int tries = 10;; --tries) {
    const Deadline deadline = deadline_in(limit);
    Error error = ask(deadline);
    EXPECT_LT(Clock::now(), deadline + kSlack);
    if (tries == 0 || error.message().find(about) != std::string::npos) return error;
  }
}

// Expects this code and a sentence with all these parts.
inline void expect_error(const Error& error, ErrorCode code,
                         const std::vector<std::string>& parts) {
  EXPECT_EQ(to_string(error.code()), to_string(code)) << error.message();
  for (const std::string& part : parts) {
    EXPECT_NE(error.message().find(part), std::string::npos)
        << "'" << part << "' is not in: " << error.message();
  }
}
template <class T>
void expect_error(const Result<T>& result, ErrorCode code, const std::vector<std::string>& parts) {
  expect_error(error_of(result), code, parts);
}

}  // namespace pushpull::testing
