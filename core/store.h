// A small shared map through which the ranks of a job find each other. Only used while connecting.
//
// Keys and values are short byte strings (values up to 64 KiB). Every operation has a deadline, and
// retries with backoff what can still become good (not resolvable yet, nobody listening, a server
// that is loading or restarting) until then; what cannot (wrong password, missing permission,
// read-only replica) fails at once. Timeout and Unavailable errors name the store and its address,
// never a password. One thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/deadline.h"
#include "core/error.h"

namespace pushpull {

class Store {
 public:
  virtual ~Store() = default;

  [[nodiscard]] virtual Result<void> set(std::string_view key, std::string_view value,
                                         Deadline deadline) = 0;
  // Sets the key if it does not exist, and returns the value it has afterwards, atomically: of
  // several that call it at once all get the same one.
  [[nodiscard]] virtual Result<std::string> set_if_absent(std::string_view key,
                                                          std::string_view value,
                                                          Deadline deadline) = 0;
  [[nodiscard]] virtual Result<std::optional<std::string>> get(std::string_view key,
                                                               Deadline deadline) = 0;
  // Waits until the key exists and has another value than `known` (empty: any). Timeout otherwise.
  [[nodiscard]] virtual Result<std::string> wait(std::string_view key, std::string_view known,
                                                 Deadline deadline) = 0;
  // Adds to a decimal counter (0 where absent), returns the new value, atomically.
  [[nodiscard]] virtual Result<int64_t> add(std::string_view key, int64_t delta,
                                            Deadline deadline) = 0;
  // Removes the key if it still has this value, atomically; not an error if it has not.
  [[nodiscard]] virtual Result<void> remove_if(std::string_view key, std::string_view value,
                                               Deadline deadline) = 0;

  // Whether what is written here can be read and changed only by those who may know the job's
  // secret (a Redis with password or on loopback, a directory only its owner can read).
  virtual bool trusted() const = 0;
  // "redis://host:6379/0", without user and password.
  virtual std::string description() const = 0;
};

// What a store needs to know. `url` as given by the user, with its scheme.
struct StoreOptions {
  std::string url;
  std::string job;
  std::string secret;       // of the job, where the user gave one; may be empty
  std::string user;         // Redis ACL
  std::string password;
  bool host_it = false;     // this is rank 0: serve the store where the kind has no server of its own
  std::string interface;    // PUSHPULL_INTERFACE
  Duration time_to_live = std::chrono::hours(1);  // of what is written
};

// A kind of store, as a module offers it.
class StoreFactory {
 public:
  virtual ~StoreFactory() = default;
  virtual std::string_view name() const = 0;    // "tcp", "file", "redis"
  // Opens the store; may connect lazily.
  [[nodiscard]] virtual Result<std::unique_ptr<Store>> open(const StoreOptions& options,
                                                            Deadline deadline) = 0;
};

}  // namespace pushpull
