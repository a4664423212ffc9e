// The store that defines what stores do: a map in this process.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/store.h"

namespace pushpull::testing {

// "memory://<name>": stores of one factory with the same name share their content.
class MemoryStoreFactory : public StoreFactory {
 public:
  std::string_view name() const override { return "memory"; }
  Result<std::unique_ptr<Store>> open(const StoreOptions& options, Deadline deadline) override;

  struct Content {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::string, std::less<>> values;
  };

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Content>> contents_;
};

}  // namespace pushpull::testing
