#include <fmt/format.h>

#include "launcher/command.h"
#include "launcher/process.h"

namespace pushpull::launcher {

std::vector<std::unique_ptr<Command>> all_commands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(make_run_command());
  commands.push_back(make_config_command());
  commands.push_back(make_dump_command());
  commands.push_back(make_check_command());
  commands.push_back(make_completion_command());
  commands.push_back(make_man_command());
  commands.push_back(make_bench_command());
  commands.push_back(make_manifest_command());
  commands.push_back(make_shim_command());
  return commands;
}

int usage_error(const std::string& sentence) {
  fmt::print(stderr, "pushpull: error: {}\n", sentence);
  return kExitUsage;
}

int usage_error(const Error& error) { return usage_error(error.message()); }

}  // namespace pushpull::launcher
