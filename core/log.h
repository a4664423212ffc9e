// Log lines on stderr: "pushpull rank 3: warning: …". One logger object per store, handed down.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace pushpull {

enum class LogLevel { kError, kWarning, kInfo, kDebug };
// "error", "warning", "info", "debug"; anything else: kWarning.
LogLevel parse_log_level(std::string_view text);

class Logger {
 public:
  virtual ~Logger() = default;
  virtual bool enabled(LogLevel level) const = 0;
  virtual void write(LogLevel level, std::string_view line) = 0;  // thread-safe, atomic per line

  void error(std::string_view line) { write(LogLevel::kError, line); }
  void warning(std::string_view line) { write(LogLevel::kWarning, line); }
  void info(std::string_view line) { write(LogLevel::kInfo, line); }
  void debug(std::string_view line) { write(LogLevel::kDebug, line); }
};

// To stderr, with a prefix such as "pushpull rank 3".
std::shared_ptr<Logger> make_stderr_logger(LogLevel level, std::string prefix);

}  // namespace pushpull
