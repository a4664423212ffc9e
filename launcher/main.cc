// The `pushpull` command.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/config.h"
#include "core/text.h"
#include "launcher/command.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

struct Entry {
  std::unique_ptr<Command> command;
  CLI::App* app;
};

// Descriptors 0 to 2 are used by number; where one is closed, a pipe of ours must not get its
// place.
void open_standard_descriptors() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= 2);
  if (fd > 2) close(fd);
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

int usage_error(const std::string& message, const std::string& near, const std::string& help) {
  fmt::print(stderr, "pushpull: error: {}{}\n{}\n", message,
             near.empty() ? "" : "; did you mean '" + near + "'?", help);
  return kExitUsage;
}

int run_entry(const Entry& entry, std::vector<std::string> words) {
  // Without `--`, the command begins at the first word that is no option.
  const std::vector<std::string> rest = entry.app->remaining();
  const std::string help = fmt::format("Try 'pushpull {} --help'.", entry.app->get_name());
  if (!rest.empty() && rest.front().size() > 1 && rest.front()[0] == '-') {
    const std::string name = rest.front().substr(0, rest.front().find('='));
    return usage_error("unknown flag " + in_quotes(name),
                       nearest_name(name, option_names(*entry.app)), help);
  }
  words.insert(words.begin(), rest.begin(), rest.end());
  return entry.command->run(words);
}

int run_program(std::vector<std::string> arguments) {
  CLI::App program("pushpull: data-parallel training over MPI, Gloo, or Gloo with Redis.",
                   "pushpull");
  program.set_version_flag("--version", "pushpull " PUSHPULL_VERSION);
  program.footer("'pushpull COMMAND --help' tells more about each.");
  program.prefix_command();
  std::vector<Entry> entries;
  std::vector<std::string> names;
  for (auto& command : all_commands()) {
    CLI::App* app = command->add_to(program);
    app->prefix_command();
    if (!app->get_group().empty()) names.push_back(app->get_name());
    entries.push_back({std::move(command), app});
  }
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  const std::vector<std::string> words(end == arguments.end() ? end : end + 1, arguments.end());
  arguments.erase(end, arguments.end());
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    program.parse(std::move(arguments));
  } catch (const CLI::CallForHelp& e) {
    return program.exit(e);
  } catch (const CLI::CallForVersion& e) {
    return program.exit(e);
  } catch (const CLI::ParseError& e) {  // CLI11 reports by exceptions
    return usage_error(e.what(), "", "Try 'pushpull --help'.");
  }
  for (const Entry& entry : entries) {
    if (entry.app->parsed()) return run_entry(entry, words);
  }
  const std::string word = program.remaining().empty() ? "" : program.remaining().front();
  if (word.empty()) {
    fmt::print(stderr, "{}", program.help());
    return kExitUsage;
  }
  return usage_error("unknown command " + in_quotes(word), nearest_name(word, names),
                     fmt::format("Known are {}.", fmt::join(names, ", ")));
}

}  // namespace
}  // namespace pushpull::launcher

int main(int argc, char** argv) {
  pushpull::launcher::open_standard_descriptors();
  const int code = pushpull::launcher::run_program({argv + 1, argv + argc});
  // An answer that could not be written is no success.
  if (std::fflush(stdout) != 0 && code == 0) return 1;
  return code;
}
