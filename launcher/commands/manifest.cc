// pushpull manifest: a job as Kubernetes objects.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/environment.h"
#include "core/net/hello.h"
#include "launcher/command.h"
#include "launcher/config_flags.h"
#include "launcher/manifest/manifest.h"

namespace pushpull::launcher {
namespace {

constexpr const char* kExamples = R"(Examples:
  pushpull manifest -c configs/kubernetes.yaml -- python examples/gluon_digits.py | kubectl apply -f -
  pushpull manifest -c job.yaml -n 8 --image registry.example/train:7 -- python train.py > job.k8s.yaml

The output holds a Secret with a secret made for it, unless kubernetes.secret names one.)";

class ManifestCommand : public Command {
 public:
  CLI::App* add_to(CLI::App& program) override {
    CLI::App* app = program.add_subcommand(
        "manifest", "Prints a job as Kubernetes objects, for kubectl apply.");
    flags_.add_to(*app);
    app->footer(kExamples);
    return app;
  }

  int run(const std::vector<std::string>& words) override {
    const auto config = flags_.load(environment_variable);
    if (!config) return usage_error(config.error());
    const auto job = make_kubernetes_job(*config, words, {random_secret(), random_secret(), ""});
    if (!job) return usage_error(job.error());
    const auto text = manifest(*job);
    if (!text) return usage_error(text.error());
    for (const std::string& note : job->notes) fmt::print(stderr, "pushpull: {}\n", note);
    fmt::print("{}", *text);
    return 0;
  }

 private:
  ConfigFlags flags_;
};

}  // namespace

std::unique_ptr<Command> make_manifest_command() { return std::make_unique<ManifestCommand>(); }

}  // namespace pushpull::launcher
