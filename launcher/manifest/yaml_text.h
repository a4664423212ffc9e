// JSON values as YAML in block style.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace pushpull::launcher {

// Texts are quoted wherever a reader of YAML 1.1 or 1.2 could take them for something else; texts
// of several lines come as they are, where that is exact. All texts must be UTF-8.
std::string to_yaml(const nlohmann::ordered_json& value);

bool is_utf8(std::string_view text);

}  // namespace pushpull::launcher
