#include "launcher/config_flags.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/environment.h"
#include "core/text.h"

namespace pushpull::launcher {
namespace {

std::string help(const ConfigKey& key) {
  std::string text(key.help);
  if (key.type == ConfigType::kChoice) {
    std::string choices(key.choices);
    for (char& c : choices) c = c == '|' ? ' ' : c;
    text += fmt::format(" One of: {}.", choices);
  }
  if (!key.default_text.empty()) text += fmt::format(" Default: {}.", key.default_text);
  return text;
}

std::string placeholder(const ConfigKey& key) {
  switch (key.type) {
    case ConfigType::kInt:
      return "N";
    case ConfigType::kDuration:
      return "TIME";
    case ConfigType::kBytes:
      return "SIZE";
    default:
      return key.path == "rendezvous.url" ? "URL" : "TEXT";
  }
}

}  // namespace

void ConfigFlags::add_to(CLI::App& command) {
  command.add_option("-c,--config", file_, "Configuration file (YAML).")->type_name("FILE");
  for (const ConfigKey& key : config_schema()) {
    if (key.flag.empty()) continue;
    command.add_option(std::string(key.flag), values_[std::string(key.path)], help(key))
        ->type_name(placeholder(key));
  }
  command
      .add_option("--set", set_,
                  "Any other setting, as in --set tuning.chunk_bytes=1MiB; may be given often.")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

std::string ConfigFlags::file() const {
  return file_.empty() ? environment_variable("PUSHPULL_CONFIG").value_or("") : file_;
}

Result<Config> ConfigFlags::load(const Config::Environment& environment,
                                 const std::map<std::string, std::string>& overrides) const {
  std::map<std::string, std::string> flags;
  for (const auto& [path, text] : values_) {
    if (!text.empty()) flags[path] = text;
  }
  for (const std::string& setting : set_) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("flag --set: {} is not of the form key=value", in_quotes(setting)));
    }
    const std::string path = setting.substr(0, equals);
    const ConfigKey* key = find_config_key(path);
    if (key != nullptr && key->type == ConfigType::kSecret) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("flag --set: '{}' does not belong on a command line, where others see it; "
                      "use {} in the environment",
                      path, key->variable));
    }
    flags[path] = setting.substr(equals + 1);
  }
  for (const auto& [path, text] : overrides) flags[path] = text;
  return Config::load(flags, environment, file_);
}

}  // namespace pushpull::launcher
