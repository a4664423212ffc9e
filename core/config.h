// One schema, four places: command-line flag, environment, YAML file, default (in this order).
//
// The schema is a table (config_schema.cc) with, per key: the YAML path ("rendezvous.url" style
// paths use dots), the environment variable, the command-line flag, the type, the default as text,
// allowed values, and one sentence of help. Everything that shows or checks configuration (this
// file, the command line, `pushpull config`, the JSON Schema, the docs table) reads that table.
//
// An environment variable that is set but empty counts as not set. A kInt whose default is "auto"
// takes "auto" as a value, which integer() returns as -1.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/settings.h"

namespace pushpull {

enum class ConfigType { kString, kInt, kBool, kDuration, kBytes, kChoice, kSecret, kStringMap };

struct ConfigKey {
  std::string_view path;      // in YAML
  std::string_view variable;  // environment; empty where there is none
  std::string_view flag;      // of `pushpull run`, "-n,--workers"; empty where there is none
  ConfigType type;
  std::string_view default_text;
  std::string_view
      choices;  // "a|b|c" for kChoice and (as examples) kString, "1..64" for kInt, kBytes
  std::string_view help;

  // Secrets, and what differs from process to process, have no place in a file that is shared.
  bool allowed_in_file() const { return type != ConfigType::kSecret && !per_process; }
  bool per_process = false;
};
// The whole schema, in the order in which it is shown.
const std::vector<ConfigKey>& config_schema();
// nullptr where there is no such key.
const ConfigKey* find_config_key(std::string_view path);

// Where a value came from.
struct ConfigValue {
  std::string text;
  std::string origin;  // "flag --backend", "environment PUSHPULL_JOB", "job.yaml:3", "default"
};

class Config {
 public:
  // Environment as a function, so that tests need not touch the real one.
  using Environment = std::function<std::optional<std::string>(std::string_view)>;

  // `flags`: path -> text. `file`: empty for none (PUSHPULL_CONFIG is looked up by the caller's
  // environment when empty). Errors name flag, variable, or file:line:column, and for an unknown
  // key the nearest known one.
  [[nodiscard]] static Result<Config> load(const std::map<std::string, std::string>& flags,
                                           const Environment& environment,
                                           const std::string& file = {});

  const ConfigValue& value(std::string_view path) const;
  std::string text(std::string_view path) const { return value(path).text; }
  int64_t integer(std::string_view path) const;
  bool boolean(std::string_view path) const;
  Duration duration(std::string_view path) const;
  size_t bytes(std::string_view path) const;
  const std::map<std::string, std::string>& map(std::string_view path) const;  // kStringMap
  bool is_default(std::string_view path) const { return value(path).origin == "default"; }
  // The text for people: secrets and passwords inside URLs are hidden, maps show their names only.
  std::string shown(std::string_view path) const;

  // What core works with. Reads secret files, takes user and password out of the rendezvous URL,
  // and normalises the backend name (`_` -> `-`, lower case).
  [[nodiscard]] Result<Settings> settings() const;

 private:
  Result<void> load_file(const std::string& name);
  Result<void> load_flag(const std::string& path, const std::string& text);

  std::map<std::string, ConfigValue, std::less<>> values_;
  std::map<std::string, std::map<std::string, std::string>, std::less<>> maps_;
};

// "60s", "1.5s", "200ms", "2m", "1h", plain numbers are seconds.
[[nodiscard]] Result<Duration> parse_duration(std::string_view text);
// "4MiB", "64k", "1GB" (powers of two for KiB/MiB/GiB and k/m/g, of ten for KB/MB/GB), plain bytes.
[[nodiscard]] Result<size_t> parse_bytes(std::string_view text);
// A whole number without sign, leading zeros or blanks.
[[nodiscard]] Result<int64_t> parse_integer(std::string_view text);
// The known name closest to `name` by edit distance, empty where none is close.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace pushpull
