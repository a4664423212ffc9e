// pushpull dump: makes the processes of a running job say what they wait for.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "launcher/command.h"
#include "launcher/explanations.h"

namespace pushpull::launcher {
namespace {

constexpr const char* kAbout =
    "Shows what each rank of a running job on this host waits for: pending keys, who is missing, "
    "the last "
    "batch, connections.";
constexpr const char* kExamples = R"(Examples:
  pushpull dump              the only job of this host, or a list of them
  pushpull dump JOB          the name is what PUSHPULL_JOB says in its processes)";
constexpr auto kPatience = std::chrono::seconds(4);

class DumpCommand : public Command {
 public:
  CLI::App* add_to(CLI::App& program) override {
    CLI::App* app = program.add_subcommand("dump", kAbout);
    app->footer(kExamples);
    return app;
  }

  int run(const std::vector<std::string>& words) override {
    if (words.size() > 1) return usage_error("dump takes one job's name");
    const auto all = find_stores();
    std::vector<std::string> jobs;
    for (const StoreProcess& store : all)
      if (jobs.empty() || jobs.back() != store.page.job) jobs.push_back(store.page.job);
    const std::string known = jobs.empty()
                                  ? "no job of this user runs on this host"
                                  : fmt::format("running on this host: {}", fmt::join(jobs, ", "));
    if (words.empty() && jobs.size() != 1)
      return usage_error(jobs.empty() ? known : fmt::format("which job? {}", known));
    const std::string job = words.empty() ? jobs.front() : words.front();
    std::vector<StoreProcess> ours;
    for (const StoreProcess& store : all)
      if (store.page.job == job) ours.push_back(store);
    if (ours.empty()) return usage_error(fmt::format("no process of job '{}' here; {}", job, known));
    return explain(ours);
  }

 private:
  static int explain(const std::vector<StoreProcess>& stores) {
    int silent = 0;
    for (const Answer& answer : ask_to_explain(stores, kPatience)) {
      const StoreProcess& store = answer.store;
      fmt::print("--- rank {} of {}, pid {}\n", store.page.rank, store.page.size, store.pid);
      if (answer.text) {
        fmt::print("{}", *answer.text);
        continue;
      }
      ++silent;
      fmt::print("no answer for {} s: {}\n", kPatience.count(), answer.why);
    }
    const int here = static_cast<int>(stores.size());
    if (here < stores.front().page.size)
      fmt::print("--- {} of {} ranks are on this host; the others answer where they are\n", here,
                 stores.front().page.size);
    return silent == 0 ? 0 : 1;
  }
};

}  // namespace

std::unique_ptr<Command> make_dump_command() { return std::make_unique<DumpCommand>(); }

}  // namespace pushpull::launcher
