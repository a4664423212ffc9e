#include "core/config_yaml.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include "core/config.h"
#include "core/text.h"

namespace pushpull {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

// Why a plain (unquoted) scalar means different things to different readers; empty if it does not.
std::string ambiguity(std::string_view text, ConfigType type) {
  constexpr std::array<std::string_view, 6> words = {"on", "off", "yes", "no", "y", "n"};
  if (std::find(words.begin(), words.end(), lower(text)) != words.end()) {
    return "a truth value to some readers of YAML and a text to others";
  }
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), digit);
  if (digits && text.size() > 1 && text[0] == '0') {
    return "octal to some readers of YAML and decimal to others";
  }
  const bool sexagesimal =
      text.find(':') != std::string_view::npos && digit(text.front()) && digit(text.back()) &&
      std::all_of(text.begin(), text.end(), [&](char c) { return digit(c) || c == ':'; });
  if (type == ConfigType::kString && sexagesimal)
    return "a number in base 60 to some readers of YAML";
  return {};
}

// Where the documents of a text begin.
class DocumentStarts : public YAML::EventHandler {
 public:
  // The second document's; nothing if there is none. No further one is looked at: yaml-cpp takes a
  // text that goes on with ',' or ']' for empty documents without end (and its LoadAll all memory).
  static std::optional<YAML::Mark> second(const std::string& content) {
    std::istringstream stream(content);
    YAML::Parser parser(stream);
    DocumentStarts starts;
    const bool two = parser.HandleNextDocument(starts) && parser.HandleNextDocument(starts);
    return two ? std::optional(starts.last_) : std::nullopt;
  }

  void OnDocumentStart(const YAML::Mark& mark) override { last_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  YAML::Mark last_;
};

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  Result<std::vector<YamlLeaf>> read(const std::string& content) {
    if (auto ok = check_tabs(content); !ok) return fail(ok.error());
    // The mark that ends a document: yaml-cpp takes the end of the file for a closing quote, but
    // not this.
    const bool complete = content.empty() || content.back() == '\n';
    const std::string text = content + (complete ? "...\n" : "\n...\n");
    if (const auto next = DocumentStarts::second(text)) {
      const auto at = static_cast<size_t>(next->pos);
      const char first = at < text.size() ? text[at] : '-';
      const bool stray = std::string_view(",]}").find(first) != std::string_view::npos;
      return error(next->line + 1, next->column + 1,
                   stray ? fmt::format("'{}' does not belong here", first)
                         : "a second document begins; one file describes one job");
    }
    const YAML::Node document = YAML::Load(text);
    if (document.IsNull()) return std::vector<YamlLeaf>{};
    if (!document.IsMap()) return error(document, "expected 'key: value' lines");
    if (auto ok = section(document, ""); !ok) return fail(ok.error());
    return std::move(leaves_);
  }

 private:
  tl::unexpected<Error> error(int line, int column, const std::string& what) const {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}:{}: {}", name_, line, column, what));
  }
  tl::unexpected<Error> error(const YAML::Node& node, const std::string& what) const {
    return error(node.Mark().line + 1, node.Mark().column + 1, what);
  }

  Result<void> check_tabs(const std::string& content) const {
    int line = 1;
    size_t start = 0;
    while (start < content.size()) {
      const size_t end = std::min(content.find('\n', start), content.size());
      const size_t text = std::min(content.find_first_not_of(" \t", start), end);
      const size_t tab = content.find('\t', start);
      if (tab < text && text < end && content[text] != '#') {
        return error(line, static_cast<int>(tab - start) + 1, "a tab indents; YAML wants spaces");
      }
      start = end + 1;
      ++line;
    }
    return {};
  }

  Result<void> section(const YAML::Node& node, const std::string& prefix) {
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return error(entry.first, "a key must be a plain name");
      const std::string& name = entry.first.Scalar();
      if (!seen.insert(name).second) {
        return error(entry.first, fmt::format("{} appears twice", in_quotes(prefix + name)));
      }
      if (auto ok = child(entry.first, entry.second, prefix + name); !ok) return ok;
    }
    return {};
  }

  Result<void> child(const YAML::Node& key_node, const YAML::Node& value, const std::string& path) {
    const ConfigKey* key = find_config_key(path);
    if (key == nullptr && is_section(path)) {
      if (value.IsNull()) return {};
      if (!value.IsMap()) {
        return error(value, fmt::format("{} is a section; it takes {}", in_quotes(path),
                                        fmt::join(names_in(path + "."), ", ")));
      }
      return section(value, path + ".");
    }
    if (key == nullptr) return error(key_node, unknown(path));
    if (!key->allowed_in_file()) return error(key_node, misplaced(*key));
    if (key->type == ConfigType::kStringMap) return map_leaf(value, path);
    if (value.IsNull()) return error(key_node, fmt::format("{} has no value", in_quotes(path)));
    return leaf(*key, value, path);
  }

  Result<void> leaf(const ConfigKey& key, const YAML::Node& value, const std::string& path) {
    if (!value.IsScalar())
      return error(value, fmt::format("{} takes a single value", in_quotes(path)));
    auto text = scalar(value, path, key.type);
    if (!text) return fail(text.error());
    if (key.type == ConfigType::kBool && value.Tag() == "!") {
      return error(value, fmt::format("{} is a text here; write true or false without quotes",
                                      in_quotes(path)));
    }
    leaves_.push_back({path, *text, {}, value.Mark().line + 1, value.Mark().column + 1});
    return {};
  }

  Result<void> map_leaf(const YAML::Node& value, const std::string& path) {
    YamlLeaf leaf{path, "", {}, value.Mark().line + 1, value.Mark().column + 1};
    if (!value.IsNull() && !value.IsMap()) {
      return error(value, fmt::format("{} takes 'NAME: value' lines", in_quotes(path)));
    }
    for (const auto& entry : value) {
      if (!entry.first.IsScalar()) return error(entry.first, "a key must be a plain name");
      const std::string& name = entry.first.Scalar();
      if (name.empty() || name.find('=') != std::string::npos ||
          name.find('\0') != std::string::npos) {
        return error(entry.first, fmt::format("{} cannot be a name in {}", in_quotes(name), path));
      }
      if (!entry.second.IsScalar()) {
        return error(entry.second, fmt::format("{} takes a single value; write '' for an empty one",
                                               in_quotes(path + "." + name)));
      }
      auto text = scalar(entry.second, path + "." + name, ConfigType::kString);
      if (!text) return fail(text.error());
      if (!leaf.map.emplace(name, *text).second) {
        return error(entry.first, fmt::format("{} appears twice", in_quotes(path + "." + name)));
      }
    }
    leaves_.push_back(std::move(leaf));
    return {};
  }

  Result<std::string> scalar(const YAML::Node& value, const std::string& path,
                             ConfigType type) const {
    const std::string& text = value.Scalar();
    if (text.find('\0') != std::string::npos) {
      return error(value, fmt::format("{} holds a zero byte", in_quotes(path)));
    }
    if (value.Tag() != "?") return text;
    const std::string why = ambiguity(text, type);
    if (why.empty()) return text;
    std::string advice = "write it plainly";
    if (type == ConfigType::kString) advice = fmt::format("write \"{}\"", text);
    if (type == ConfigType::kBool) advice = "write true or false";
    return error(value,
                 fmt::format("{} for {} is {}; {}", in_quotes(text), in_quotes(path), why, advice));
  }

  static bool is_section(const std::string& path) {
    return std::any_of(config_schema().begin(), config_schema().end(), [&](const ConfigKey& key) {
      return key.path.substr(0, path.size() + 1) == path + ".";
    });
  }

  // What may stand directly under a prefix ("" or "rendezvous.").
  static std::vector<std::string> names_in(const std::string& prefix) {
    std::vector<std::string> names;
    for (const ConfigKey& key : config_schema()) {
      if (!key.allowed_in_file() || key.path.substr(0, prefix.size()) != prefix) continue;
      const std::string_view rest = key.path.substr(prefix.size());
      const std::string name(rest.substr(0, rest.find('.')));
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
  }

  static std::string unknown(const std::string& path) {
    const size_t dot = path.rfind('.');
    const std::string prefix = dot == std::string::npos ? "" : path.substr(0, dot + 1);
    const std::string name = path.substr(prefix.size());
    const std::vector<std::string> known = names_in(prefix);
    std::string hint = nearest_name(name, known);
    if (!hint.empty()) hint = prefix + hint;
    for (const ConfigKey& key : config_schema()) {  // right name, wrong section
      const std::string_view last = key.path.substr(key.path.rfind('.') + 1);
      if (hint.empty() && key.allowed_in_file() && last == name) hint = key.path;
    }
    if (!hint.empty()) {
      return fmt::format("unknown key {}; did you mean {}?", in_quotes(path), in_quotes(hint));
    }
    return fmt::format("unknown key {}; known here are {}", in_quotes(path),
                       fmt::join(known, ", "));
  }

  static std::string misplaced(const ConfigKey& key) {
    if (key.per_process) {
      return fmt::format("'{}' differs from process to process; it is set by {} in the environment",
                         key.path, key.variable);
    }
    return fmt::format(
        "'{}' does not belong in a file that others may read; use {}_file or {} in "
        "the environment",
        key.path, key.path, key.variable);
  }

  const std::string& name_;
  std::vector<YamlLeaf> leaves_;
};

}  // namespace

Result<std::vector<YamlLeaf>> read_config_yaml(const std::string& name,
                                               const std::string& content) {
  if (const size_t zero = content.find('\0'); zero != std::string::npos) {
    const auto line =
        std::count(content.begin(), content.begin() + static_cast<ptrdiff_t>(zero), '\n');
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{}:{}: a zero byte stands here; this is no text file", name, line + 1));
  }
  try {
    return Reader(name).read(content);
  } catch (const YAML::Exception& e) {  // yaml-cpp reports by exceptions
    const bool open_quote = e.msg == YAML::ErrorMsg::DOC_IN_SCALAR;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}:{}: {}", name, e.mark.line + 1, e.mark.column + 1,
                            open_quote ? "a quote that was opened above is not closed" : e.msg));
  }
}

}  // namespace pushpull
