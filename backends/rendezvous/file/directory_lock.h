// One process at a time among those that share a directory, over NFS too.
#pragma once

#include <string>

#include "core/deadline.h"
#include "core/error.h"
#include "core/net/socket.h"

namespace pushpull::file_store {

// Holds flock() on a file while it lives; the kernel lets go when a process dies. The file may be
// removed by whoever holds the lock: the others notice and take a new one.
class DirectoryLock {
 public:
  // Timeout where others hold it until the deadline, Unavailable where the file system cannot lock.
  [[nodiscard]] static Result<DirectoryLock> take(const std::string& path, Deadline deadline);

 private:
  explicit DirectoryLock(Socket file) : file_(std::move(file)) {}
  Socket file_;  // any descriptor closes itself so
};

}  // namespace pushpull::file_store
