#include "core/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

namespace pushpull {
namespace {

constexpr std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "?";
}

// Whatever peers wrote into it: nothing that a terminal would obey.
void append_printable(std::string_view text, std::string* out) {
  for (const char c : text) {
    const bool control = (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f;
    out->push_back(control ? '?' : c);
  }
}

// As one write, so that lines of several processes do not mix (up to PIPE_BUF in a pipe). Without a
// lock and without a buffer, so that a forked child can still say why it stops.
void write_all(std::string_view bytes) {
  constexpr int kPatience = 100;  // milliseconds, where stderr is a full non-blocking pipe
  while (!bytes.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {
      pollfd ready = {STDERR_FILENO, POLLOUT, 0};
      if (::poll(&ready, 1, kPatience) <= 0) return;
    } else if (errno != EINTR) {
      return;
    }
  }
}

class StderrLogger final : public Logger {
 public:
  StderrLogger(LogLevel level, std::string prefix) : level_(level), prefix_(std::move(prefix)) {}

  bool enabled(LogLevel level) const override { return level <= level_; }

  void write(LogLevel level, std::string_view text) override {
    if (!enabled(level)) return;
    std::string out;
    do {
      const size_t end = std::min(text.find('\n'), text.size());
      out.append(prefix_).append(": ").append(name_of(level)).append(": ");
      append_printable(text.substr(0, end), &out);
      out.push_back('\n');
      text.remove_prefix(std::min(end + 1, text.size()));
    } while (!text.empty());
    write_all(out);
  }

 private:
  const LogLevel level_;
  const std::string prefix_;
};

}  // namespace

LogLevel parse_log_level(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const LogLevel level : {LogLevel::kError, LogLevel::kInfo, LogLevel::kDebug}) {
    if (lower == name_of(level)) return level;
  }
  return LogLevel::kWarning;
}

std::shared_ptr<Logger> make_stderr_logger(LogLevel level, std::string prefix) {
  return std::make_shared<StderrLogger>(level, std::move(prefix));
}

}  // namespace pushpull
