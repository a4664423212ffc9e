// The subcommands of `pushpull`: one file each in commands/, listed in commands.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"

namespace CLI {
class App;
}

namespace pushpull::launcher {

class Command {
 public:
  virtual ~Command() = default;
  // Adds the subcommand to the program, with its options and help; returns it.
  virtual CLI::App* add_to(CLI::App& program) = 0;
  // `words`: what followed `--` on the command line, or the first word that is no option and all
  // after it. Returns the exit code. Main thread.
  virtual int run(const std::vector<std::string>& words) = 0;
};

std::vector<std::unique_ptr<Command>> all_commands();

// Says it on standard error; returns the exit code for wrong usage.
int usage_error(const std::string& sentence);
int usage_error(const Error& error);

std::unique_ptr<Command> make_run_command();
std::unique_ptr<Command> make_config_command();
std::unique_ptr<Command> make_dump_command();
std::unique_ptr<Command> make_check_command();
std::unique_ptr<Command> make_completion_command();
std::unique_ptr<Command> make_man_command();
std::unique_ptr<Command> make_bench_command();
std::unique_ptr<Command> make_manifest_command();
std::unique_ptr<Command> make_shim_command();

}  // namespace pushpull::launcher
