#include "core/config.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

#include "core/config_yaml.h"
#include "core/text.h"

namespace pushpull {
namespace {

constexpr size_t kMostFileBytes = 1u << 20;
constexpr std::string_view kSchemes = "tcp://host:port, file:///folder or redis://host:port/db";

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

// A whole small file. `what` begins the sentence of an error.
Result<std::string> read_file(const std::string& path, std::string_view what) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return invalid(
        fmt::format("{} {} cannot be read: {}", what, in_quotes(path), errno_text(errno)));
  }
  if (S_ISDIR(info.st_mode)) {
    return invalid(fmt::format("{} {} is a folder", what, in_quotes(path)));
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string content(kMostFileBytes + 1, '\0');
  in.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (in.bad() || (in.gcount() == 0 && !in.eof())) {
    return invalid(fmt::format("{} {} cannot be read: {}", what, in_quotes(path),
                               errno_text(errno != 0 ? errno : EIO)));
  }
  content.resize(static_cast<size_t>(in.gcount()));
  if (content.size() > kMostFileBytes) {
    return invalid(fmt::format("{} {} is larger than 1 MiB", what, in_quotes(path)));
  }
  return content;
}

Result<void> check_integer(const ConfigKey& key, std::string_view text) {
  if (text == key.default_text) return {};
  const auto number = parse_integer(text);
  if (!number) return fail(number.error());
  if (const size_t dots = key.choices.find(".."); dots != std::string_view::npos) {
    const auto low = parse_integer(key.choices.substr(0, dots));
    const auto high = parse_integer(key.choices.substr(dots + 2));
    if (*number < *low || *number > *high) {
      return invalid(fmt::format("{} is not between {} and {}", *number, *low, *high));
    }
  }
  return {};
}

Result<void> check_bytes(const ConfigKey& key, std::string_view text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) return fail(bytes.error());
  if (const size_t dots = key.choices.find(".."); dots != std::string_view::npos) {
    const std::string_view low = key.choices.substr(0, dots);
    const std::string_view high = key.choices.substr(dots + 2);
    if (*bytes < *parse_bytes(low) || *bytes > *parse_bytes(high)) {
      return invalid(fmt::format("{} is not between {} and {}", text, low, high));
    }
  }
  return {};
}

Result<void> check_choice(const ConfigKey& key, std::string_view text) {
  const auto parts = split(key.choices, '|');
  const std::vector<std::string> choices(parts.begin(), parts.end());
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return {};
  const std::string near = nearest_name(text, choices);
  return invalid(fmt::format("{} is not one of {}{}", in_quotes(text), fmt::join(choices, ", "),
                             near.empty() ? "" : "; did you mean '" + near + "'?"));
}

Result<void> check_ports(std::string_view text) {
  const size_t dash = text.find('-');
  const auto low = parse_integer(text.substr(0, dash));
  const auto high = dash == std::string_view::npos ? low : parse_integer(text.substr(dash + 1));
  if (!low || !high || *low < 1 || *high > 65535 || *low > *high) {
    return invalid(fmt::format("{} is not a port or a range of ports; write it like 30000-30100",
                               in_quotes(text)));
  }
  return {};
}

Result<void> check_url(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme == 0 || scheme == std::string_view::npos || scheme + 3 == text.size()) {
    return invalid(fmt::format("{} is not a URL; write it like {}",
                               in_quotes(without_password(text)), kSchemes));
  }
  return {};
}

Result<void> check_text(const ConfigKey& key, std::string_view text) {
  switch (key.type) {
    case ConfigType::kInt:
      return check_integer(key, text);
    case ConfigType::kDuration:
      if (auto duration = parse_duration(text); !duration) return fail(duration.error());
      return {};
    case ConfigType::kBytes:
      return check_bytes(key, text);
    case ConfigType::kChoice:
      return check_choice(key, text);
    case ConfigType::kBool:
      if (text == "true" || text == "false") return {};
      return invalid(fmt::format("{} is neither true nor false", in_quotes(text)));
    case ConfigType::kStringMap:
      return invalid("it can be set in a file only");
    case ConfigType::kString:
      if (key.path == "ports" && !text.empty()) return check_ports(text);
      if (key.path == "rendezvous.url" && !text.empty()) return check_url(text);
      if (key.path == "backend" && text.empty()) return invalid("it is empty");
      return {};
    case ConfigType::kSecret:
      return {};
  }
  return {};
}

// A password in an argument is in every process list, one in a file in every backup.
Result<void> check_no_password(const ConfigKey& key, const std::string& text) {
  if (key.path != "rendezvous.url" || without_password(text) == text) return {};
  return invalid(
      "a password belongs neither on a command line nor in a shared file; use "
      "redis.password_file, or PUSHPULL_REDIS_PASSWORD in the environment");
}

std::string flag_name(const ConfigKey& key) {
  if (key.flag.empty()) return std::string(key.path);
  return std::string(key.flag.substr(key.flag.rfind(',') + 1));
}

bool is_set(const Config::Environment& environment, std::string_view variable, std::string& text) {
  if (variable.empty()) return false;
  auto value = environment(variable);
  if (!value || value->empty()) return false;
  text = std::move(*value);
  return true;
}

Result<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto digit = [&](size_t at) -> int {
      const char c = at < text.size() ? text[at] : ' ';
      if (c >= '0' && c <= '9') return c - '0';
      const char l = static_cast<char>(c | 0x20);
      return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
    };
    if (digit(i + 1) < 0 || digit(i + 2) < 0) {
      return invalid(
          "user or password in the rendezvous URL hold a % that is no escape; write %25");
    }
    out += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
    i += 2;
  }
  return out;
}

// The secret itself if it is set, else the content of its file without the newline at the end.
Result<std::string> secret_of(const Config& config, const std::string& path) {
  const std::string text = config.text(path);
  const std::string file = config.text(path + "_file");
  if (!text.empty() || file.empty()) return text;
  auto content = read_file(file, fmt::format("the file in '{}_file'", path));
  if (!content) return content;
  while (!content->empty() && (content->back() == '\n' || content->back() == '\r')) {
    content->pop_back();
  }
  if (content->empty()) {
    return invalid(fmt::format("the file in '{}_file', {}, is empty", path, in_quotes(file)));
  }
  return content;
}

// redis://user:password@host -> redis://host, with user and password in the settings.
Result<void> take_user_out_of_url(Settings& settings) {
  const std::string url = settings.rendezvous;
  const size_t start = url.find("://") == std::string::npos ? 0 : url.find("://") + 3;
  const size_t at = url.rfind('@', url.find_first_of("/?#", start));
  if (start == 0 || at == std::string::npos || at < start) return {};
  const std::string_view user_info = std::string_view(url).substr(start, at - start);
  const size_t colon = user_info.find(':');
  auto user = percent_decoded(user_info.substr(0, colon));
  if (!user) return fail(user.error());
  if (settings.redis_user.empty()) settings.redis_user = *user;
  if (colon != std::string_view::npos) {
    auto password = percent_decoded(user_info.substr(colon + 1));
    if (!password) return fail(password.error());
    if (settings.redis_password.empty()) settings.redis_password = *password;
  }
  settings.rendezvous = url.substr(0, start) + url.substr(at + 1);
  return {};
}

}  // namespace

Result<Config> Config::load(const std::map<std::string, std::string>& flags,
                            const Environment& environment, const std::string& file) {
  Config config;
  for (const ConfigKey& key : config_schema()) {
    config.values_.emplace(key.path, ConfigValue{std::string(key.default_text), "default"});
    if (key.type == ConfigType::kStringMap)
      config.maps_.emplace(key.path, std::map<std::string, std::string>());
  }
  std::string name = file;
  if (name.empty()) is_set(environment, "PUSHPULL_CONFIG", name);
  if (!name.empty()) {
    if (auto ok = config.load_file(name); !ok) return fail(ok.error());
  }
  for (const ConfigKey& key : config_schema()) {
    std::string text;
    if (!is_set(environment, key.variable, text)) continue;
    if (auto ok = check_text(key, text); !ok) {
      return fail(ok.error().with_context(fmt::format("environment variable {}", key.variable)));
    }
    config.values_[std::string(key.path)] = {text, fmt::format("environment {}", key.variable)};
  }
  for (const auto& [path, text] : flags) {
    if (auto ok = config.load_flag(path, text); !ok) return fail(ok.error());
  }
  return config;
}

Result<void> Config::load_file(const std::string& name) {
  auto content = read_file(name, "the configuration file");
  if (!content) return fail(content.error());
  auto leaves = read_config_yaml(name, *content);
  if (!leaves) return fail(leaves.error());
  for (YamlLeaf& leaf : *leaves) {
    const ConfigKey& key = *find_config_key(leaf.path);
    const std::string origin = fmt::format("{}:{}", name, leaf.line);
    values_[leaf.path] = {leaf.text, origin};
    if (key.type == ConfigType::kStringMap) {
      maps_[leaf.path] = std::move(leaf.map);
      continue;
    }
    auto ok = check_text(key, leaf.text);
    if (ok) ok = check_no_password(key, leaf.text);
    if (!ok) {
      return fail(ok.error().with_context(
          fmt::format("{}:{}:{}: {}", name, leaf.line, leaf.column, leaf.path)));
    }
  }
  return {};
}

Result<void> Config::load_flag(const std::string& path, const std::string& text) {
  const ConfigKey* key = find_config_key(path);
  if (key == nullptr) {
    std::vector<std::string> known;
    for (const ConfigKey& k : config_schema()) known.emplace_back(k.path);
    const std::string near = nearest_name(path, known);
    return invalid(fmt::format("unknown setting {}{}", in_quotes(path),
                               near.empty() ? "" : "; did you mean '" + near + "'?"));
  }
  auto ok = check_text(*key, text);
  if (ok) ok = check_no_password(*key, text);
  if (!ok) return fail(ok.error().with_context("flag " + flag_name(*key)));
  values_[path] = {text, "flag " + flag_name(*key)};
  return {};
}

const ConfigValue& Config::value(std::string_view path) const {
  const auto found = values_.find(path);
  if (found == values_.end()) std::abort();  // not a key of the schema: a mistake in the caller
  return found->second;
}

int64_t Config::integer(std::string_view path) const {
  return parse_integer(value(path).text).value_or(-1);
}

bool Config::boolean(std::string_view path) const { return value(path).text == "true"; }

Duration Config::duration(std::string_view path) const {
  return parse_duration(value(path).text).value_or(Duration::zero());
}

size_t Config::bytes(std::string_view path) const {
  return parse_bytes(value(path).text).value_or(0);
}

const std::map<std::string, std::string>& Config::map(std::string_view path) const {
  const auto found = maps_.find(path);
  if (found == maps_.end()) std::abort();
  return found->second;
}

std::string Config::shown(std::string_view path) const {
  const ConfigKey* key = find_config_key(path);
  const std::string& text = value(path).text;
  if (key->type == ConfigType::kSecret) return text.empty() ? "" : "***";
  if (key->type != ConfigType::kStringMap) return without_password(text);
  std::string names;
  for (const auto& [name, unused] : map(path)) names += (names.empty() ? "" : ", ") + name;
  return names;
}

Result<Settings> Config::settings() const {
  Settings s;
  s.backend = text("backend");
  std::transform(s.backend.begin(), s.backend.end(), s.backend.begin(), [](char c) {
    if (c == '_') return '-';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  s.job = text("job");
  s.rank = static_cast<int>(integer("rank"));
  s.size = static_cast<int>(integer("workers"));
  s.local_rank = static_cast<int>(integer("local_rank"));
  s.rendezvous = text("rendezvous.url");
  s.rendezvous_timeout = duration("rendezvous.timeout");
  s.redis_user = text("redis.user");
  auto secret = secret_of(*this, "secret");
  auto password = secret_of(*this, "redis.password");
  if (!secret) return fail(secret.error());
  if (!password) return fail(password.error());
  s.secret = std::move(*secret);
  s.redis_password = std::move(*password);
  if (auto ok = take_user_out_of_url(s); !ok) return fail(ok.error());
  s.interface = text("interface");
  s.ports = text("ports");
  s.module_path = text("backend_path");
  s.log = text("log");
  s.heartbeat_timeout = duration("failure.heartbeat_timeout");
  s.stall_warning = duration("failure.stall_warning");
  s.stall_timeout = duration("failure.stall_timeout");
  s.leave_timeout = duration("failure.leave_timeout");
  s.dump_signal = boolean("failure.dump_signal");
  s.fusion_bytes = bytes("tuning.fusion_bytes");
  s.chunk_bytes = bytes("tuning.chunk_bytes");
  s.shm_chunk_bytes = bytes("tuning.shm_chunk_bytes");
  s.local = text("local");
  s.exchange = text("exchange");
  return s;
}

}  // namespace pushpull
