#include "launcher/output.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

#include <fmt/format.h>

#include "core/error.h"

namespace pushpull::launcher {
namespace {

constexpr size_t kFull = size_t{8} << 20;

bool same_file(int a, int b) {
  struct stat x {};
  struct stat y {};
  return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

size_t terminal_width(int fd) {
  winsize size{};
  return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

// At most `columns` characters, counting UTF-8 sequences as one.
std::string_view cut_to_width(std::string_view text, size_t columns) {
  size_t seen = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (begins && seen++ == columns) return text.substr(0, i);
  }
  return text;
}

}  // namespace

class Output::Destination {
 public:
  Destination(int fd, const std::function<void()>& changed)
      : fd_(fd),
        terminal_(isatty(fd) == 1),
        changed_(changed),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

  bool terminal() const { return terminal_; }
  bool closed() const { return closed_; }
  bool full() const { return backlog_ > kFull; }
  int error() const { return error_; }

  void write_lines(std::string_view lines) {
    if (closed_ || lines.empty()) return;
    const std::lock_guard lock(mutex_);
    clear_open_line();
    pending_ += lines;
    draw_open_line();
    queued();
  }

  void show_open_line(const std::string& text) {
    if (closed_ || !terminal_) return;
    const std::lock_guard lock(mutex_);
    if (text == open_line_) return;
    clear_open_line();
    open_line_ = text;
    draw_open_line();
    queued();
  }

  bool flush(Deadline deadline) {
    std::unique_lock lock(mutex_);
    return idle_.wait_until(lock, deadline,
                            [&] { return (pending_.empty() && !writing_) || closed_; });
  }

 private:
  void clear_open_line() {
    if (drawn_) pending_ += "\r\x1b[K";
    drawn_ = false;
  }
  void draw_open_line() {
    if (open_line_.empty()) return;
    pending_ += cut_to_width(open_line_, terminal_width(fd_) - 1);
    drawn_ = true;
  }
  void queued() {
    backlog_ = pending_.size() + being_written_;
    wake_.notify_one();
  }

  void run(const std::stop_token& stop) {
    std::string batch;
    std::unique_lock lock(mutex_);
    while (wake_.wait(lock, stop, [&] { return !pending_.empty(); })) {
      batch.swap(pending_);
      writing_ = true;
      being_written_ = batch.size();
      lock.unlock();
      const bool ok = write_all(batch);
      batch.clear();
      lock.lock();
      const bool was_full = full();
      writing_ = false;
      being_written_ = 0;
      if (!ok) {
        pending_.clear();
        closed_ = true;
      }
      backlog_ = pending_.size();
      if (pending_.empty() || closed_) idle_.notify_all();
      if ((was_full && !full()) || !ok) changed_();
    }
  }

  bool write_all(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = write(fd_, bytes.data(), bytes.size());
      if (n >= 0) {
        bytes.remove_prefix(static_cast<size_t>(n));
      } else if (errno == EAGAIN) {
        pollfd waiting{fd_, POLLOUT, 0};  // somebody made it non-blocking
        poll(&waiting, 1, 1000);
      } else if (errno != EINTR) {
        error_ = errno;
        return false;
      }
    }
    return true;
  }

  const int fd_;
  const bool terminal_;
  const std::function<void()> changed_;  // a copy: the two destinations share nothing
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::condition_variable idle_;
  std::string pending_;
  std::string open_line_;
  bool drawn_ = false;
  bool writing_ = false;
  size_t being_written_ = 0;
  std::atomic<size_t> backlog_{0};
  std::atomic<bool> closed_{false};
  std::atomic<int> error_{0};
  std::jthread thread_;  // last: it uses all of the above
};

Output::Output(int out, int err, std::function<void()> changed)
    : out_(std::make_unique<Destination>(out, changed)) {
  if (!same_file(out, err)) err_ = std::make_unique<Destination>(err, changed);
}

Output::~Output() = default;

Output::Destination& Output::at(Stream stream) const {
  return stream == Stream::kErr && err_ ? *err_ : *out_;
}

void Output::write_lines(Stream stream, std::string_view lines) { at(stream).write_lines(lines); }

void Output::say(std::string_view line) {
  write_lines(Stream::kErr, fmt::format("pushpull: {}\n", line));
}

void Output::show_open_line(Stream stream, const std::string& text) {
  at(stream).show_open_line(text);
}

bool Output::is_terminal(Stream stream) const { return at(stream).terminal(); }

bool Output::full() const { return out_->full() || (err_ && err_->full()); }

bool Output::closed(Stream stream) const { return at(stream).closed(); }

int Output::error(Stream stream) const { return at(stream).error(); }

bool Output::flush(Deadline deadline) {
  const bool out_done = out_->flush(deadline);
  return (!err_ || err_->flush(deadline)) && out_done;
}

}  // namespace pushpull::launcher
