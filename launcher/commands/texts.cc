// pushpull completion, pushpull man: texts made from the command line's own description.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/net/hello.h"
#include "launcher/cli_text.h"
#include "launcher/command.h"

namespace pushpull::launcher {
namespace {

class CompletionCommand : public Command {
 public:
  CLI::App* add_to(CLI::App& program) override {
    program_ = &program;
    CLI::App* app =
        program.add_subcommand("completion", "Prints a completion script for bash, zsh or fish.");
    app->footer(
        "Examples:\n"
        "  source <(pushpull completion bash)\n"
        "  pushpull completion zsh > ~/.zfunc/_pushpull\n"
        "  pushpull completion fish | source");
    return app;
  }

  int run(const std::vector<std::string>& words) override {
    const auto script = completion_script(*program_, words.size() == 1 ? words.front() : "");
    if (!script) {
      return usage_error(script.error().message() + "; as in pushpull completion bash");
    }
    fmt::print("{}", *script);
    return 0;
  }

 private:
  const CLI::App* program_ = nullptr;
};

class ManCommand : public Command {
 public:
  CLI::App* add_to(CLI::App& program) override {
    program_ = &program;
    CLI::App* app = program.add_subcommand("man", "Prints the manual page.");
    app->footer("Examples:\n  pushpull man | man -l -\n  pushpull man > pushpull.1");
    return app;
  }

  int run(const std::vector<std::string>& words) override {
    if (!words.empty()) return usage_error("man takes no arguments");
    fmt::print("{}", man_page(*program_, library_version()));
    return 0;
  }

 private:
  const CLI::App* program_ = nullptr;
};

}  // namespace

std::unique_ptr<Command> make_completion_command() { return std::make_unique<CompletionCommand>(); }
std::unique_ptr<Command> make_man_command() { return std::make_unique<ManCommand>(); }

}  // namespace pushpull::launcher
