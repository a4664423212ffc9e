// The configuration schema in the forms that people and editors read.
#pragma once

#include <string>

#include "core/config.h"

namespace pushpull::launcher {

// A JSON Schema (draft 2020-12) for configuration files.
std::string json_schema();
// The effective values as a configuration file, each with its origin as a comment; secrets hidden.
std::string effective_yaml(const Config& config);
// The same as JSON: {"path": {"value": …, "origin": …}}.
std::string effective_json(const Config& config);

}  // namespace pushpull::launcher
