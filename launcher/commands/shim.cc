// pushpull shim: hidden; see launcher/shim.h.
#include <CLI/CLI.hpp>

#include "core/environment.h"
#include "launcher/command.h"
#include "launcher/process.h"
#include "launcher/shim.h"

namespace pushpull::launcher {
namespace {

class ShimCommand : public Command {
 public:
  CLI::App* add_to(CLI::App& program) override {
    CLI::App* app = program.add_subcommand("shim", "Started by mpirun or srun under pushpull run.");
    app->group("");
    return app;
  }

  int run(const std::vector<std::string>& words) override {
    return run_shim(words, environment_variable, whole_environment());
  }
};

}  // namespace

std::unique_ptr<Command> make_shim_command() { return std::make_unique<ShimCommand>(); }

}  // namespace pushpull::launcher
