#include "core/text.h"

#include <fmt/format.h>

namespace pushpull {

std::string in_quotes(std::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  if (cut) text = text.substr(0, limit);
  // A multi-byte character is not cut in two.
  while (cut && !text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) {
    text.remove_suffix(1);
  }
  if (cut && !text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) {
    text.remove_suffix(1);
  }
  std::string out = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  out += cut ? "…'" : "'";
  return out;
}

std::string without_password(std::string_view url) {
  const size_t scheme = url.find("://");
  if (scheme == std::string_view::npos) return std::string(url);
  const size_t start = scheme + 3;
  const size_t end = url.find_first_of("/?#", start);
  const std::string_view authority =
      url.substr(start, end == std::string_view::npos ? end : end - start);
  // The password may itself hold an unescaped / or @: hide up to the last @ of the whole text.
  const size_t at =
      authority.find('@') == std::string_view::npos ? url.rfind('@') : start + authority.rfind('@');
  if (at == std::string_view::npos || at < start) return std::string(url);
  const size_t colon = url.find(':', start);
  if (colon == std::string_view::npos || colon > at) return std::string(url);
  return std::string(url.substr(0, colon + 1)) + "***" + std::string(url.substr(at));
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace pushpull
