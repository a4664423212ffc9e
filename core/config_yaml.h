// Reads a configuration file strictly, as far as YAML is concerned: what different readers of YAML
// understand differently (on/no, 08, 1:30, tabs, duplicate keys) is an error, not a guess.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace pushpull {

struct YamlLeaf {
  std::string path;  // "rendezvous.url"
  std::string text;
  std::map<std::string, std::string> map;  // of a kStringMap
  int line = 0;                            // from 1
  int column = 0;
};

// `name` is what errors call the file; `content` its bytes. Every leaf's path is in the schema; its
// text has not been checked yet.
[[nodiscard]] Result<std::vector<YamlLeaf>> read_config_yaml(const std::string& name,
                                                             const std::string& content);

}  // namespace pushpull
