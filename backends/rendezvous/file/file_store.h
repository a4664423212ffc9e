// "file:///directory": a store of files in a directory that all hosts of the job share.
//
// The directory is made (for its owner only) where it is missing, its parent is not. Several jobs
// may share one. What is written expires by its age on the file server's clock.
#pragma once

#include <memory>
#include <string>

#include "backends/rendezvous/file/job_files.h"
#include "core/store.h"

namespace pushpull::file_store {

class FileStoreFactory : public StoreFactory {
 public:
  std::string_view name() const override { return "file"; }
  Result<std::unique_ptr<Store>> open(const StoreOptions& options, Deadline deadline) override;
};

class FileStore : public Store {
 public:
  explicit FileStore(JobFiles files) : files_(std::move(files)) {}
  ~FileStore() override;  // the last one to leave takes the lock's file away

  Result<void> set(std::string_view key, std::string_view value, Deadline deadline) override;
  Result<std::string> set_if_absent(std::string_view key, std::string_view value,
                                    Deadline deadline) override;
  Result<std::optional<std::string>> get(std::string_view key, Deadline deadline) override;
  // Woken by inotify where the change is made on this host, else by a look every 200 ms at most.
  Result<std::string> wait(std::string_view key, std::string_view known,
                           Deadline deadline) override;
  Result<int64_t> add(std::string_view key, int64_t delta, Deadline deadline) override;
  Result<void> remove_if(std::string_view key, std::string_view value, Deadline deadline) override;
  bool trusted() const override;
  std::string description() const override { return "file://" + files_.directory(); }

 private:
  const JobFiles files_;
};

}  // namespace pushpull::file_store
