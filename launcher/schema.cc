#include "launcher/schema.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace pushpull::launcher {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_text(const char* pattern) {
  return {{"anyOf", Json::array({{{"type", "number"}, {"minimum", 0}},
                                 {{"type", "string"}, {"pattern", pattern}}})}};
}

Json integer(const ConfigKey& key) {
  Json type = {{"type", "integer"}};
  const size_t dots = key.choices.find("..");
  if (dots != std::string_view::npos) {
    type["minimum"] = parse_integer(key.choices.substr(0, dots)).value_or(0);
    type["maximum"] = parse_integer(key.choices.substr(dots + 2)).value_or(0);
  }
  if (key.default_text != "auto") return type;
  return {{"anyOf", Json::array({type, {{"const", "auto"}}})}};
}

Json type_of(const ConfigKey& key) {
  switch (key.type) {
    case ConfigType::kInt:
      return integer(key);
    case ConfigType::kBool:
      return {{"type", "boolean"}};
    case ConfigType::kDuration:
      return number_or_text("^[0-9]+(\\.[0-9]*)?(us|ms|s|m|min|h|d)?$");
    case ConfigType::kBytes:
      return number_or_text("^[0-9]+(\\.[0-9]*)?([kKmMgGtT]([iI]?[bB])?|[bB])?$");
    case ConfigType::kChoice:
      return {{"enum", split(key.choices, '|')}};
    case ConfigType::kStringMap:
      return {{"type", "object"},
              {"additionalProperties", {{"type", Json::array({"string", "number", "boolean"})}}}};
    case ConfigType::kString:
    case ConfigType::kSecret:
      break;
  }
  Json type = {{"type", "string"}};
  if (!key.choices.empty()) type["examples"] = split(key.choices, '|');
  return type;
}

Json default_of(const ConfigKey& key) {
  if (key.type == ConfigType::kBool) return key.default_text == "true";
  const auto number = parse_integer(key.default_text);
  if (key.type == ConfigType::kInt && number) return *number;
  return key.default_text;
}

Json object() {
  return {{"type", "object"}, {"additionalProperties", false}, {"properties", Json::object()}};
}

std::string comment(const Config& config, const ConfigKey& key) {
  const std::string& origin = config.value(key.path).origin;
  std::string text = "  # " + origin;
  if (!key.variable.empty() && origin == "default") text += fmt::format(" ({})", key.variable);
  return text;
}

// Double quotes read the same everywhere.
std::string yaml_text(const ConfigKey& key, const std::string& text) {
  if (key.type == ConfigType::kString && !text.empty())
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.empty() ? "\"\"" : text;
}

std::string yaml_map(const Config& config, const ConfigKey& key, const std::string& indent) {
  const auto& map = config.map(key.path);
  if (map.empty()) return " {}" + comment(config, key) + "\n";
  std::string out = comment(config, key) + "\n";
  for (const auto& [name, value] : map) {
    out += fmt::format("{}  {}: {}\n", indent, name,
                       Json(value).dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return out;
}

}  // namespace

std::string json_schema() {
  Json schema = object();
  for (const ConfigKey& key : config_schema()) {
    if (!key.allowed_in_file()) continue;
    Json* parent = &schema;
    std::string_view name = key.path;
    for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.')) {
      Json& section = (*parent)["properties"][std::string(name.substr(0, dot))];
      // A section whose lines are all commented out is fine.
      if (section.is_null()) (section = object())["type"] = Json::array({"object", "null"});
      parent = &section;
      name.remove_prefix(dot + 1);
    }
    Json property = type_of(key);
    property["description"] = key.help;
    if (key.type != ConfigType::kStringMap && !key.default_text.empty()) {
      property["default"] = default_of(key);
    }
    (*parent)["properties"][std::string(name)] = property;
  }
  Json out = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
              {"title", "pushpull job configuration"}};
  out.update(schema);
  return out.dump(2) + "\n";
}

std::string effective_yaml(const Config& config) {
  std::string out;
  std::string section;
  for (const ConfigKey& key : config_schema()) {
    const size_t dot = key.path.find('.');
    const std::string prefix(dot == std::string_view::npos ? "" : key.path.substr(0, dot));
    if (prefix != section && !prefix.empty()) out += prefix + ":\n";
    section = prefix;
    const std::string indent = prefix.empty() ? "" : "  ";
    const std::string_view name =
        dot == std::string_view::npos ? key.path : key.path.substr(dot + 1);
    if (key.type == ConfigType::kStringMap) {
      out += fmt::format("{}{}:{}", indent, name, yaml_map(config, key, indent));
      continue;
    }
    const std::string shown = config.shown(key.path);
    const bool hidden = !key.allowed_in_file() || shown != config.text(key.path);
    out += fmt::format("{}{}{}: {}{}\n", indent, hidden ? "# " : "", name, yaml_text(key, shown),
                       comment(config, key));
  }
  return out;
}

std::string effective_json(const Config& config) {
  Json out = Json::object();
  for (const ConfigKey& key : config_schema()) {
    Json value = config.shown(key.path);
    if (key.type == ConfigType::kStringMap) value = config.map(key.path);
    out[std::string(key.path)] = {{"value", value}, {"origin", config.value(key.path).origin}};
  }
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pushpull::launcher
