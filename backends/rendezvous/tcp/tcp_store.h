// "tcp://host:port": a store that rank 0 serves itself.
//
// Rank 0 (StoreOptions::host_it) listens on the URL's address if that is one of its own, else on
// every address; port 0 takes a free one, which description() tells. The others connect to the URL.
// Without a secret only a loopback URL is allowed, and rank 0 listens on loopback only.
#pragma once

#include <memory>
#include <string>

#include "backends/rendezvous/tcp/caller.h"
#include "core/store.h"

namespace pushpull::tcp_store {

class TcpStoreFactory : public StoreFactory {
 public:
  std::string_view name() const override { return "tcp"; }
  Result<std::unique_ptr<Store>> open(const StoreOptions& options, Deadline deadline) override;
};

class TcpStore : public Store {
 public:
  TcpStore(std::unique_ptr<Caller> caller, std::string description, bool trusted)
      : caller_(std::move(caller)), description_(std::move(description)), trusted_(trusted) {}

  Result<void> set(std::string_view key, std::string_view value, Deadline deadline) override;
  Result<std::string> set_if_absent(std::string_view key, std::string_view value,
                                    Deadline deadline) override;
  Result<std::optional<std::string>> get(std::string_view key, Deadline deadline) override;
  Result<std::string> wait(std::string_view key, std::string_view known,
                           Deadline deadline) override;
  Result<int64_t> add(std::string_view key, int64_t delta, Deadline deadline) override;
  Result<void> remove_if(std::string_view key, std::string_view value, Deadline deadline) override;
  bool trusted() const override { return trusted_; }
  std::string description() const override { return description_; }

 private:
  Result<Reply> call(Operation operation, std::string_view key, std::string_view value,
                     int64_t delta, Deadline deadline);

  const std::unique_ptr<Caller> caller_;
  const std::string description_;
  const bool trusted_;
  uint64_t requests_ = 0;
};

}  // namespace pushpull::tcp_store
