#include "tests/stores/redis_test.h"

#include <utility>

namespace pushpull::testing {

std::unique_ptr<Store> RedisTest::open(StoreOptions options, Deadline deadline) {
  auto factory = registry_.store("redis");
  EXPECT_TRUE(factory) << factory.error().message();
  if (!factory) return nullptr;
  auto store = (*factory)->open(options, deadline);
  EXPECT_TRUE(store) << store.error().message();
  return store ? std::move(*store) : nullptr;
}

Error RedisTest::refusal(StoreOptions options, Deadline deadline) {
  auto factory = registry_.store("redis");
  EXPECT_TRUE(factory) << factory.error().message();
  if (!factory) return factory.error();
  auto store = (*factory)->open(options, deadline);
  EXPECT_FALSE(store.has_value());
  return store ? Error(ErrorCode::kAborted, "it could be opened") : store.error();
}

StoreOptions RedisTest::options(const RedisServer& server) {
  return options(server.url(), {}, server.password());
}

StoreOptions RedisTest::options(std::string url, std::string user, std::string password) {
  StoreOptions options;
  options.url = std::move(url);
  options.user = std::move(user);
  options.password = std::move(password);
  return options;
}

std::unique_ptr<RedisServer> RedisTest::start(RedisServerOptions options) {
  auto server = RedisServer::start(std::move(options));
  EXPECT_TRUE(server) << server.error().message();
  return server ? std::move(*server) : nullptr;
}

}  // namespace pushpull::testing
