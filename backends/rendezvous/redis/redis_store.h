// Rendezvous through a Redis. See docs/redis.md.
#pragma once

#include "backends/rendezvous/redis/redis_client.h"
#include "core/store.h"

namespace pushpull::redis {

class RedisStore : public Store {
 public:
  RedisStore(RedisClient client, Duration time_to_live);

  Result<void> set(std::string_view key, std::string_view value, Deadline deadline) override;
  Result<std::string> set_if_absent(std::string_view key, std::string_view value,
                                    Deadline deadline) override;
  Result<std::optional<std::string>> get(std::string_view key, Deadline deadline) override;
  Result<std::string> wait(std::string_view key, std::string_view known,
                           Deadline deadline) override;
  Result<int64_t> add(std::string_view key, int64_t delta, Deadline deadline) override;
  Result<void> remove_if(std::string_view key, std::string_view value, Deadline deadline) override;
  bool trusted() const override { return client_.trusted(); }
  std::string description() const override { return client_.description(); }

 private:
  // The text of the reply to a command that always answers with one.
  Result<std::string> text_of(const Command& command, Deadline deadline);
  Result<void> check_size(std::string_view key, std::string_view value) const;
  Error missing(std::string_view key, bool exists, Duration waited) const;

  RedisClient client_;
  Duration time_to_live_;
  std::string milliseconds_to_live_;
};

class RedisStoreFactory : public StoreFactory {
 public:
  std::string_view name() const override { return "redis"; }
  // Connects and logs in, so that a wrong address or password is known at once.
  Result<std::unique_ptr<Store>> open(const StoreOptions& options, Deadline deadline) override;
};

}  // namespace pushpull::redis
