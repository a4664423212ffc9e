// The flags that come from the configuration schema, the same for every subcommand.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/error.h"

namespace CLI {
class App;
}

namespace pushpull::launcher {

class ConfigFlags {
 public:
  // -c, --set, and one flag for each key of the schema that has one. The object must outlive
  // `command`.
  void add_to(CLI::App& command);

  // `overrides`: path -> text, in place of what the command line says.
  [[nodiscard]] Result<Config> load(const Config::Environment& environment,
                                    const std::map<std::string, std::string>& overrides = {}) const;
  // As given by -c, or by PUSHPULL_CONFIG; empty where there is none.
  std::string file() const;

 private:
  std::string file_;
  std::vector<std::string> set_;               // "path=value"
  std::map<std::string, std::string> values_;  // by path
};

}  // namespace pushpull::launcher
