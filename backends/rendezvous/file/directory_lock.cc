#include "backends/rendezvous/file/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "core/net/dial_attempt.h"

namespace pushpull::file_store {
namespace {

using std::chrono::milliseconds;

// Whether the path still names the file that was locked.
bool is_current(int fd, const std::string& path) {
  struct stat locked = {};
  struct stat named = {};
  return fstat(fd, &locked) == 0 && stat(path.c_str(), &named) == 0 &&
         locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
}

}  // namespace

Result<DirectoryLock> DirectoryLock::take(const std::string& path, Deadline deadline) {
  const auto unable = [&](int error_number) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot lock {}: {}", path, errno_words(error_number)));
  };
  milliseconds pause{1};
  while (true) {
    Socket file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.valid() && errno != ESTALE) return unable(errno);
    if (file.valid() && ::flock(file.fd(), LOCK_EX | LOCK_NB) == 0) {
      if (is_current(file.fd(), path)) return DirectoryLock(std::move(file));
      continue;
    }
    if (file.valid() && (errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS)) {
      return fail(
          ErrorCode::kUnavailable,
          fmt::format("the file system of {} cannot lock files ({}); use a tcp:// or redis:// "
                      "rendezvous",
                      path, errno_words(errno)));
    }
    if (file.valid() && errno != EWOULDBLOCK && errno != EINTR) return unable(errno);
    if (Clock::now() >= deadline) {
      return fail(ErrorCode::kTimeout, fmt::format("another process holds {} all the time", path));
    }
    std::this_thread::sleep_until(std::min(deadline, deadline_in(pause)));
    pause = std::min(pause * 2, milliseconds(16));
  }
}

}  // namespace pushpull::file_store
