// The files of one job in a shared directory: one per key, a lock, and temporary ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/deadline.h"
#include "core/error.h"

namespace pushpull::file_store {

// Reads need no lock: files appear and are replaced whole. Everything that changes them is to be
// called under the DirectoryLock of lock_path(). Errors name the path.
class JobFiles {
 public:
  JobFiles(std::string directory, std::string_view job, Duration time_to_live);

  // Measures how far the file server's clock is from ours, by a file that is written and removed.
  [[nodiscard]] Result<void> synchronize();

  const std::string& directory() const { return directory_; }
  std::string lock_path() const;

  // Absent where there is no file, or an expired one.
  [[nodiscard]] Result<std::optional<std::string>> read(std::string_view key) const;
  [[nodiscard]] Result<void> write(std::string_view key, std::string_view value) const;
  // Writes where there is nothing; false where there is. Atomic even if the lock does not reach all
  // hosts.
  [[nodiscard]] Result<bool> create(std::string_view key, std::string_view value) const;
  [[nodiscard]] Result<void> remove(std::string_view key) const;

  // Removes what is too old: of this job by its time to live, of other jobs after a day more.
  void sweep() const;
  // Whether no key of this job is left.
  bool empty() const;

 private:
  std::string path_of(std::string_view key) const;
  Result<std::string> write_temporary(std::string_view value) const;
  bool older_than(const std::string& path, Duration age) const;

  const std::string directory_;
  const std::string prefix_;  // "pushpull.<job>."
  const Duration time_to_live_;
  Duration clock_ahead_{};  // the file server's, of ours
};

}  // namespace pushpull::file_store
