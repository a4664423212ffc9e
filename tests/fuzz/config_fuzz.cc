// Any bytes as a configuration file, or as a value in one: read or refused with a sentence that
// names the place, never a crash.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/config.h"
#include "core/config_yaml.h"
#include "core/text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull;
  const std::string content(reinterpret_cast<const char*>(data), size);
  const auto leaves = read_config_yaml("fuzz.yaml", content);
  if (!leaves && leaves.error().message().rfind("fuzz.yaml:", 0) != 0) std::abort();
  in_quotes(content);
  const std::string hidden = without_password(content);
  if (without_password(hidden) != hidden) std::abort();
  static_cast<void>(parse_duration(content));
  static_cast<void>(parse_bytes(content));
  static_cast<void>(parse_integer(content));
  return 0;
}
