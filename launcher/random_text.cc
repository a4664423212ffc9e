#include "launcher/random_text.h"

#include <sys/random.h>

#include <fmt/format.h>

namespace pushpull::launcher {

std::string random_text(size_t bytes) {
  std::string raw(bytes, '\0');
  // Up to 256 bytes come whole and at once.
  [[maybe_unused]] const ssize_t n = getrandom(raw.data(), raw.size(), 0);
  std::string text;
  for (const char c : raw) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

}  // namespace pushpull::launcher
