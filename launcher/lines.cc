#include "launcher/lines.h"

#include <cstring>

namespace pushpull::launcher {
namespace {

// A line longer than this is cut: memory is finite.
constexpr size_t kLongestLine = size_t{256} << 20;

}  // namespace

std::string_view after_carriage_returns(std::string_view line) {
  while (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  const size_t last = line.rfind('\r');
  return last == std::string_view::npos ? line : line.substr(last + 1);
}

void LineTagger::append_line(std::string_view line, std::string& out) const {
  if (memchr(line.data(), '\r', line.size()) != nullptr) line = after_carriage_returns(line);
  out += tag_;
  out += line;
  out += '\n';
}

size_t LineTagger::feed(std::string_view bytes, std::string& out) {
  const size_t before = out.size();
  while (!bytes.empty()) {
    const auto* newline = static_cast<const char*>(memchr(bytes.data(), '\n', bytes.size()));
    if (newline == nullptr) {
      append_partial(bytes);
      if (partial_.size() > kLongestLine) finish(out);
      break;
    }
    const auto length = static_cast<size_t>(newline - bytes.data());
    if (partial_.empty()) {
      append_line(bytes.substr(0, length), out);
    } else {
      partial_ += bytes.substr(0, length);
      append_line(partial_, out);
      partial_.clear();
      progress_ = false;
      if (partial_.capacity() > (size_t{1} << 20)) partial_ = {};
      open_changed_ = true;
    }
    bytes.remove_prefix(length + 1);
  }
  return out.size() - before;
}

void LineTagger::append_partial(std::string_view bytes) {
  partial_ += bytes;
  open_changed_ = true;
  if (memchr(bytes.data(), '\r', bytes.size()) == nullptr) return;
  progress_ = true;
  // A progress bar may go on for days without a newline: forget what it wrote over. Returns at the
  // end stay, for they may be the first half of a line end.
  const std::string_view shown = after_carriage_returns(partial_);
  partial_.erase(0, static_cast<size_t>(shown.data() - partial_.data()));
}

size_t LineTagger::finish(std::string& out) {
  const size_t before = out.size();
  if (!partial_.empty()) append_line(partial_, out);
  partial_.clear();
  progress_ = false;
  open_changed_ = true;
  return out.size() - before;
}

std::string LineTagger::open_line() const {
  const std::string_view shown = after_carriage_returns(partial_);
  return shown.empty() ? std::string() : tag_ + std::string(shown);
}

}  // namespace pushpull::launcher
