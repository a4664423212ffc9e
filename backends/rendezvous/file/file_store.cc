#include "backends/rendezvous/file/file_store.h"

#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>

#include <fmt/format.h>

#include "backends/rendezvous/file/directory_lock.h"
#include "backends/rendezvous/limits.h"
#include "core/net/dial_attempt.h"

namespace pushpull::file_store {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view kScheme = "file://";

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain.push_back(text[i]);
      continue;
    }
    unsigned byte = 0;
    const char* digits = text.data() + i + 1;
    if (i + 2 >= text.size() || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2 ||
        byte == 0) {
      return std::nullopt;
    }
    plain.push_back(static_cast<char>(byte));
    i += 2;
  }
  return plain;
}

Result<std::string> directory_of(const std::string& url) {
  const auto wrong = [&](std::string_view why) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a directory such as file:///nfs/job42: {}", url, why));
  };
  std::string_view rest = url;
  if (!rest.starts_with(kScheme)) return wrong("it does not start with file://");
  rest.remove_prefix(kScheme.size());
  if (rest.starts_with("localhost/")) rest.remove_prefix(std::string_view("localhost").size());
  if (!rest.starts_with('/')) return wrong("behind file:// belongs an absolute path");
  auto path = percent_decoded(rest);
  if (!path) return wrong("a '%' must be written %25");
  while (path->size() > 1 && path->ends_with('/')) path->pop_back();
  return std::move(*path);
}

// Its parent has to exist: a mistyped mount point must not become a directory on every host.
Result<void> make_directory(const std::string& path) {
  const auto unable = [&](int error_number) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot use directory {} for the rendezvous: {}", path,
                            errno_words(error_number)));
  };
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    // A read-only parent says so even where the directory exists.
    const int failed = errno;
    if (::access(path.c_str(), F_OK) != 0) return unable(failed);
  }
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return unable(errno);
  if (!S_ISDIR(info.st_mode)) return unable(ENOTDIR);
  return {};
}

// Sleeps until something changes in the directory, or for a while that grows to 200 ms.
class Watch {
 public:
  explicit Watch(const std::string& directory) : events_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    // Without inotify (a limit of the system) the pauses alone do.
    if (events_.valid()) {
      inotify_add_watch(events_.fd(), directory.c_str(), IN_MOVED_TO | IN_CREATE | IN_DELETE);
    }
  }

  void sleep(Deadline deadline) {
    pollfd ready = {events_.fd(), POLLIN, 0};
    ::poll(&ready, 1, milliseconds_left(deadline, static_cast<int>(pause_.count())));
    pause_ = std::min(pause_ * 2, milliseconds(200));
    char events[4096];
    while (events_.valid() && ::read(events_.fd(), events, sizeof(events)) > 0) {
    }
  }

 private:
  Socket events_;
  milliseconds pause_{5};
};

}  // namespace

Result<std::unique_ptr<Store>> FileStoreFactory::open(const StoreOptions& options,
                                                      Deadline deadline) {
  auto directory = directory_of(options.url);
  if (!directory) return fail(directory.error());
  if (auto made = make_directory(*directory); !made) return fail(made.error());
  JobFiles files(*directory, options.job, options.time_to_live);
  if (auto synchronized = files.synchronize(); !synchronized) return fail(synchronized.error());
  auto lock = DirectoryLock::take(files.lock_path(), deadline);
  if (!lock) return fail(lock.error());
  files.sweep();
  return std::make_unique<FileStore>(std::move(files));
}

FileStore::~FileStore() {
  auto lock = DirectoryLock::take(files_.lock_path(), deadline_in(milliseconds(500)));
  if (lock && files_.empty()) ::unlink(files_.lock_path().c_str());
}

Result<void> FileStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  if (auto ok = check_key(key); !ok) return ok;
  if (auto ok = check_value(key, value); !ok) return ok;
  auto lock = DirectoryLock::take(files_.lock_path(), deadline);
  if (!lock) return fail(lock.error());
  return files_.write(key, value);
}

Result<std::string> FileStore::set_if_absent(std::string_view key, std::string_view value,
                                             Deadline deadline) {
  if (auto ok = check_key(key); !ok) return fail(ok.error());
  if (auto ok = check_value(key, value); !ok) return fail(ok.error());
  auto lock = DirectoryLock::take(files_.lock_path(), deadline);
  if (!lock) return fail(lock.error());
  while (true) {
    auto found = files_.read(key);
    if (!found) return fail(found.error());
    if (*found) return std::move(**found);
    auto created = files_.create(key, value);
    if (!created) return fail(created.error());
    if (*created) return std::string(value);
    // Somebody whom the lock does not reach was faster.
    if (Clock::now() >= deadline) {
      return fail(ErrorCode::kTimeout,
                  fmt::format("key '{}' at {} changes all the time", key, description()));
    }
  }
}

Result<std::optional<std::string>> FileStore::get(std::string_view key, Deadline) {
  if (auto ok = check_key(key); !ok) return fail(ok.error());
  return files_.read(key);
}

Result<std::string> FileStore::wait(std::string_view key, std::string_view known,
                                    Deadline deadline) {
  if (auto ok = check_key(key); !ok) return fail(ok.error());
  const auto began = Clock::now();
  Watch watch(files_.directory());
  while (true) {
    auto found = files_.read(key);
    if (!found) return fail(found.error());
    if (*found && (known.empty() || **found != known)) return std::move(**found);
    if (Clock::now() >= deadline) break;
    watch.sleep(deadline);
  }
  Error error(ErrorCode::kTimeout, fmt::format("key '{}' did not {} at {} within {}", key,
                                               known.empty() ? "appear" : "change", description(),
                                               seconds_text(deadline - began)));
  return fail(error.at_key(std::string(key)));
}

Result<int64_t> FileStore::add(std::string_view key, int64_t delta, Deadline deadline) {
  if (auto ok = check_key(key); !ok) return fail(ok.error());
  auto lock = DirectoryLock::take(files_.lock_path(), deadline);
  if (!lock) return fail(lock.error());
  auto current = files_.read(key);
  if (!current) return fail(current.error());
  auto sum = add_to_counter(key, *current, delta);
  if (!sum) return sum;
  if (auto written = files_.write(key, std::to_string(*sum)); !written) {
    return fail(written.error());
  }
  return sum;
}

Result<void> FileStore::remove_if(std::string_view key, std::string_view value, Deadline deadline) {
  if (auto ok = check_key(key); !ok) return ok;
  auto lock = DirectoryLock::take(files_.lock_path(), deadline);
  if (!lock) return fail(lock.error());
  auto current = files_.read(key);
  if (!current) return fail(current.error());
  if (*current != value) return {};
  return files_.remove(key);
}

bool FileStore::trusted() const {
  struct stat info = {};
  return ::stat(files_.directory().c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == geteuid() && (info.st_mode & 077) == 0;
}

}  // namespace pushpull::file_store
