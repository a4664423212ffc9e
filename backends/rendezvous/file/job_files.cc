#include "backends/rendezvous/file/job_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>

#include <fmt/format.h>

#include "backends/rendezvous/limits.h"
#include "core/net/dial_attempt.h"
#include "core/net/hello.h"
#include "core/net/socket.h"

namespace pushpull::file_store {
namespace {

constexpr std::string_view kOurs = "pushpull.";
constexpr size_t kMaxNameBytes = 100;
constexpr int kStaleTries = 10;

// A job or key as a part of a file name: the same on file systems that do not tell A from a,
// without dots.
std::string encode_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (plain) {
      name.push_back(c);
    } else {
      name += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (name.size() <= kMaxNameBytes) return name;
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &length, EVP_sha256(), nullptr);
  std::string hash = "sha256-";
  for (unsigned int i = 0; i < length; ++i) hash += fmt::format("{:02x}", digest[i]);
  return hash;
}

tl::unexpected<Error> unable(std::string_view what, const std::string& path, int error_number) {
  return fail(ErrorCode::kUnavailable,
              fmt::format("cannot {} {}: {}", what, path, errno_words(error_number)));
}

std::chrono::system_clock::time_point modified(const struct stat& info) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::seconds(info.st_mtim.tv_sec) +
          std::chrono::nanoseconds(info.st_mtim.tv_nsec)));
}

Result<std::string> read_all(int fd, const std::string& path) {
  std::string bytes(kMaxValueBytes + 1, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = ::read(fd, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unable("read", path, errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > kMaxValueBytes) {
    return fail(ErrorCode::kUnavailable, fmt::format("{} is no file of pushpull's", path));
  }
  bytes.resize(size);
  return bytes;
}

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

void for_each_name(const std::string& directory, const std::function<void(std::string_view)>& use) {
  const std::unique_ptr<DIR, CloseDirectory> open(opendir(directory.c_str()));
  if (!open) return;
  while (const dirent* entry = readdir(open.get())) use(entry->d_name);
}

}  // namespace

JobFiles::JobFiles(std::string directory, std::string_view job, Duration time_to_live)
    : directory_(std::move(directory)),
      prefix_(fmt::format("{}{}.", kOurs, encode_name(job))),
      time_to_live_(time_to_live) {}

std::string JobFiles::lock_path() const { return directory_ + "/" + prefix_ + "lock"; }

std::string JobFiles::path_of(std::string_view key) const {
  return directory_ + "/" + prefix_ + "key." + encode_name(key);
}

Result<void> JobFiles::synchronize() {
  auto path = write_temporary({});
  if (!path) return fail(path.error());
  struct stat info = {};
  const bool known = stat(path->c_str(), &info) == 0;
  const auto now = std::chrono::system_clock::now();
  ::unlink(path->c_str());
  if (known) clock_ahead_ = std::chrono::duration_cast<Duration>(modified(info) - now);
  return {};
}

Result<std::optional<std::string>> JobFiles::read(std::string_view key) const {
  const std::string path = path_of(key);
  for (int tries = 0;; ++tries) {
    // Opening the directory makes an NFS client ask the server what is in it.
    Socket(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)).close();
    const Socket file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file.valid() && errno == ENOENT) return std::optional<std::string>();
    if (!file.valid() && errno == ESTALE && tries < kStaleTries) continue;
    if (!file.valid()) return unable("read", path, errno);
    struct stat info = {};
    if (fstat(file.fd(), &info) != 0) return unable("read", path, errno);
    const auto now = std::chrono::system_clock::now() + clock_ahead_;
    if (now - modified(info) > time_to_live_) return std::optional<std::string>();
    auto value = read_all(file.fd(), path);
    if (!value) return fail(value.error());
    return std::optional(std::move(*value));
  }
}

Result<std::string> JobFiles::write_temporary(std::string_view value) const {
  const std::string path = directory_ + "/" + prefix_ + "tmp." + random_id();
  const Socket file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return unable("create", path, errno);
  while (!value.empty()) {
    const ssize_t written = ::write(file.fd(), value.data(), value.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int failed = errno;
      ::unlink(path.c_str());
      return unable("write", path, failed);
    }
    value.remove_prefix(static_cast<size_t>(written));
  }
  return path;
}

Result<void> JobFiles::write(std::string_view key, std::string_view value) const {
  auto temporary = write_temporary(value);
  if (!temporary) return fail(temporary.error());
  const std::string path = path_of(key);
  if (::rename(temporary->c_str(), path.c_str()) == 0) return {};
  const int failed = errno;
  ::unlink(temporary->c_str());
  return unable("write", path, failed);
}

Result<bool> JobFiles::create(std::string_view key, std::string_view value) const {
  auto temporary = write_temporary(value);
  if (!temporary) return fail(temporary.error());
  const std::string path = path_of(key);
  if (older_than(path, time_to_live_)) ::unlink(path.c_str());
  int failed = ::link(temporary->c_str(), path.c_str()) == 0 ? 0 : errno;
  // An NFS server's answer may be lost after it did what was asked: the count of names tells.
  struct stat info = {};
  if (failed != 0 && stat(temporary->c_str(), &info) == 0 && info.st_nlink == 2) failed = 0;
  const bool no_links = failed == EPERM || failed == EOPNOTSUPP || failed == ENOSYS;
  if (no_links && ::access(path.c_str(), F_OK) != 0) {
    failed = ::rename(temporary->c_str(), path.c_str()) == 0 ? 0 : errno;
  } else if (no_links) {
    failed = EEXIST;
  }
  ::unlink(temporary->c_str());
  if (failed == 0 || failed == EEXIST) return failed == 0;
  return unable("create", path, failed);
}

Result<void> JobFiles::remove(std::string_view key) const {
  const std::string path = path_of(key);
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return unable("remove", path, errno);
}

bool JobFiles::older_than(const std::string& path, Duration age) const {
  struct stat info = {};
  if (lstat(path.c_str(), &info) != 0) return false;
  return std::chrono::system_clock::now() + clock_ahead_ - modified(info) > age;
}

void JobFiles::sweep() const {
  const std::string lock = lock_path();
  for_each_name(directory_, [&](std::string_view name) {
    if (!name.starts_with(kOurs)) return;
    const std::string path = directory_ + "/" + std::string(name);
    const Duration day = std::chrono::hours(24);
    const Duration age = name.starts_with(prefix_) ? time_to_live_ : time_to_live_ + day;
    if (path != lock && older_than(path, age)) ::unlink(path.c_str());
  });
}

bool JobFiles::empty() const {
  bool found = false;
  for_each_name(directory_, [&](std::string_view name) {
    if (name.starts_with(prefix_ + "key.")) found = true;
  });
  return !found;
}

}  // namespace pushpull::file_store
