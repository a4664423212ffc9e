// pushpull config: what the settings are, and where each comes from.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/environment.h"
#include "launcher/command.h"
#include "launcher/config_flags.h"
#include "launcher/schema.h"

namespace pushpull::launcher {
namespace {

constexpr const char* kExamples = R"(Examples:
  pushpull config -c configs/local.yaml
  pushpull config --schema > pushpull.schema.json     for completion in editors)";

class ConfigCommand : public Command {
 public:
  CLI::App* add_to(CLI::App& program) override {
    CLI::App* app =
        program.add_subcommand("config", "Shows the effective settings and where each comes from.");
    flags_.add_to(*app);
    auto* schema =
        app->add_flag("--schema", schema_, "Print a JSON Schema of configuration files.");
    app->add_flag("--json", json_, "Print JSON.")->excludes(schema);
    app->footer(kExamples);
    return app;
  }

  int run(const std::vector<std::string>& words) override {
    if (schema_) {
      fmt::print("{}", json_schema());
      return 0;
    }
    const auto config = flags_.load(environment_variable);
    if (!config) return usage_error(config.error());
    if (!words.empty())
      return usage_error("config takes no command; leave out what follows its flags");
    fmt::print("{}", json_ ? effective_json(*config) : effective_yaml(*config));
    return 0;
  }

 private:
  ConfigFlags flags_;
  bool schema_ = false;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_config_command() { return std::make_unique<ConfigCommand>(); }

}  // namespace pushpull::launcher
