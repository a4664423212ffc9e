#include "launcher/manifest/yaml_text.h"

#include <algorithm>
#include <array>

#include <yaml-cpp/yaml.h>
#include <nlohmann/json.hpp>

namespace pushpull::launcher {
namespace {

using Json = nlohmann::ordered_json;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether every reader takes the bare text for a text, and for this one. Errs on the safe side.
bool is_plain(std::string_view text) {
  constexpr std::array<std::string_view, 9> words = {"y",   "n",    "yes",   "no",  "on",
                                                     "off", "true", "false", "null"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (std::find(words.begin(), words.end(), lower) != words.end()) return false;
  if (text.empty() || text.size() > 200 || !(is_letter(text[0]) || text[0] == '/')) return false;
  if (text.back() == ':') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter(c) || is_digit(c) || std::string_view("_-./:=@%+").find(c) < 9;
  });
}

// Whether a literal block gives back exactly this text.
bool is_block(std::string_view text) {
  const size_t size = text.size();
  if (std::count(text.begin(), text.end(), '\n') < 2 || text.back() != '\n') return false;
  if (text[0] == ' ' || text[0] == '\n' || text[size - 2] == '\n') return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c == '\n' || (c >= 0x20 && c <= 0x7e); });
}

void write(YAML::Emitter& out, const std::string& text) {
  if (is_block(text)) {
    out << YAML::Literal << text.substr(0, text.size() - 1);
  } else if (is_plain(text)) {
    out << text;
  } else {
    out << YAML::DoubleQuoted << text;
  }
}

void write(YAML::Emitter& out, const Json& value) {
  if (value.is_object()) {
    if (value.empty()) out << YAML::Flow;
    out << YAML::BeginMap;
    for (const auto& [name, child] : value.items()) {
      out << YAML::Key;
      write(out, name);
      out << YAML::Value;
      write(out, child);
    }
    out << YAML::EndMap;
  } else if (value.is_array()) {
    if (value.empty()) out << YAML::Flow;
    out << YAML::BeginSeq;
    for (const Json& child : value) write(out, child);
    out << YAML::EndSeq;
  } else if (value.is_string()) {
    write(out, value.get_ref<const std::string&>());
  } else {
    out << value.dump();  // numbers, true, false
  }
}

}  // namespace

std::string to_yaml(const Json& value) {
  YAML::Emitter out;
  write(out, value);
  return std::string(out.c_str()) + "\n";
}

bool is_utf8(std::string_view text) {
  try {
    (void)Json(std::string(text)).dump();
    return true;
  } catch (const Json::exception&) {  // nlohmann reports by exceptions
    return false;
  }
}

}  // namespace pushpull::launcher
