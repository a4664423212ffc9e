// pushpull check: the doctor.
#include <unistd.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "core/environment.h"
#include "core/identity.h"
#include "core/net/endpoint.h"
#include "core/registry.h"
#include "launcher/attempt.h"
#include "launcher/check/group_checks.h"
#include "launcher/check/host_checks.h"
#include "launcher/check/result.h"
#include "launcher/command.h"
#include "launcher/config_flags.h"
#include "launcher/job.h"
#include "launcher/process.h"
#include "launcher/start.h"
#include "launcher/warden.h"

namespace pushpull::launcher {
namespace {

constexpr const char* kExamples = R"(Examples:
  pushpull check                              this host, and an exchange on each backend
  pushpull check -c job.yaml                  all ranks of a job, where they will run
  pushpull check --hosts a:2,b:2 --json

Exit code: 0 nothing failed (there may be warnings); 1 something failed; 2 wrong usage.)";

using Overrides = std::map<std::string, std::string>;

// What came of one job of examining ranks.
struct Answers {
  std::map<int, std::string> out;  // by rank
  std::map<int, std::string> err;  // -1: the launcher's
};

// "…\nlast words\n" -> "last words"
std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const size_t start = text.rfind('\n');
  return start == std::string::npos ? text : text.substr(start + 1);
}

std::string first_error(const std::string& text) {
  const size_t at = text.find("error: ");
  if (at == std::string::npos) return last_line(text);
  return text.substr(at + 7, text.find('\n', at) - at - 7);
}

bool use_colour() {
  const std::string terminal = environment_variable("TERM").value_or("dumb");
  return isatty(STDOUT_FILENO) == 1 && terminal != "dumb" &&
         environment_variable("NO_COLOR").value_or("").empty();
}

class CheckCommand : public Command {
 public:
  CLI::App* add_to(CLI::App& program) override {
    CLI::App* app = program.add_subcommand(
        "check",
        "Examines this host, or all ranks of a job: what works, what does not, what to do.");
    flags_.add_to(*app);
    app->add_flag("--json", json_, "Print JSON.");
    app->add_option("--part", part_, "What a rank examines.")->group("");
    app->add_option("--job-backend", job_backend_, "The backend that is meant.")->group("");
    app->footer(kExamples);
    return app;
  }

  int run(const std::vector<std::string>& words) override {
    if (!part_.empty()) return run_as_rank();
    if (!words.empty()) {
      return usage_error(fmt::format("check takes no command; leave out '{}'", words.front()));
    }
    const auto config = flags_.load(environment_variable);
    if (!config) return usage_error(config.error());
    const auto attempt =
        Attempt::prepare(*config, flags_.file(), {command_folder() + "/pushpull", "check"});
    if (!attempt) return usage_error(attempt.error());
    if (!attempt->plan().script.empty()) {
      return usage_error(
          "check examines a Slurm job inside its allocation: salloc -n 2 pushpull check -c FILE");
    }
    size_ = static_cast<int>(attempt->plan().workers.size());
    engine_ = attempt->plan().engine;
    backend_ = attempt->plan().backend;
    patient_ = !config->is_default("rendezvous.timeout");
    return run_watched([&](int alive) { return examine(alive); });
  }

 private:
  // ---- as one of the ranks ----

  int run_as_rank() {
    const auto config = Config::load({}, environment_variable);
    if (!config) return usage_error(config.error());
    auto settings = config->settings();
    if (!settings) return usage_error(settings.error());
    Registry registry(config->text("backend_path"));
    // MPI is asked only where it is to work.
    const auto identity =
        part_ == "exchange"
            ? find_identity(environment_variable, registry, &*settings)
            : Result<Identity>(Identity{std::max(settings->rank, 0), std::max(settings->size, 1)});
    if (!identity) return usage_error(identity.error());
    RankFindings mine{identity->rank, host_name(), {}};
    if (part_ == "exchange") {
      mine.findings = {check_exchange(*settings, *identity, registry)};
    } else {
      const auto local = parse_integer(environment_variable("PUSHPULL_LOCAL_SIZE").value_or("1"));
      Settings meant = *settings;
      meant.backend = job_backend_;
      mine.findings = check_host(meant, registry, static_cast<int>(local.value_or(1)));
      if (identity->size > 1) {
        for (Finding& finding : check_group(*settings, *identity, registry)) {
          mine.findings.push_back(std::move(finding));
        }
      }
    }
    fmt::print("{}\n", encode(mine));
    return 0;
  }

  // ---- as the launcher of ranks ----

  int examine(int alive) {
    std::vector<RankFindings> all = ask(job_of_hosts(), "host", alive);
    std::vector<Finding> exchanges;
    const std::vector<std::string> known = {"gloo", "gloo-redis", "mpi"};
    for (const std::string& backend : known) {
      if (backend != backend_) exchanges.push_back(exchange_here(backend, alive));
    }
    for (RankFindings& ranks : ask(job_of_exchange(), "exchange", alive)) {
      const auto same = std::find_if(all.begin(), all.end(),
                                     [&](const RankFindings& r) { return r.rank == ranks.rank; });
      if (same == all.end())
        all.push_back({ranks.rank, "", std::move(ranks.findings)});
      else
        same->findings.insert(same->findings.end(), ranks.findings.begin(), ranks.findings.end());
    }
    std::vector<Row> rows = join_findings(all);
    for (Finding& finding : exchanges) rows.push_back({std::move(finding), {}});
    fmt::print("{}", json_ ? findings_json(rows) : findings_table(rows, use_colour()));
    std::fflush(stdout);
    return worst(rows) == Health::kFail ? 1 : 0;
  }

  Overrides common() const {
    Overrides overrides = {
        {"launch.log_dir", ""}, {"launch.restarts", "0"}, {"launch.timeout", "180s"}};
    if (!patient_) overrides["rendezvous.timeout"] = "20s";
    return overrides;
  }

  // Where the job's ranks will be; MPI has no rendezvous of ours, so they meet as Gloo's would.
  Overrides job_of_hosts() const {
    Overrides overrides = common();
    overrides["launch.engine"] = engine_;
    if (backend_ == "gloo" || backend_ == "gloo-redis") return overrides;
    overrides.insert({{"backend", "gloo"}, {"rendezvous.url", ""}, {"redis.start", "false"}});
    return overrides;
  }

  Overrides job_of_exchange() const {
    if (size_ == 1 && backend_ != "self") return exchange_of_two(backend_);
    Overrides overrides = common();
    overrides["launch.engine"] = engine_;
    return overrides;
  }

  Overrides exchange_of_two(const std::string& backend) const {
    Overrides overrides = common();
    overrides.insert({{"backend", backend},
                      {"workers", "2"},
                      {"launch.hosts", ""},
                      {"launch.hostfile", ""},
                      {"launch.starter_args", ""},
                      {"launch.engine", backend == "mpi" ? "mpirun" : "local"}});
    if (backend != backend_ || backend != "gloo-redis") {
      overrides["rendezvous.url"] = "";
      overrides["redis.start"] = backend == "gloo-redis" ? "true" : "false";
    }
    return overrides;
  }

  // Another backend than the job's: what it lacks is not the job's trouble.
  Finding exchange_here(const std::string& backend, int alive) {
    Finding result{"exchange by " + backend, Health::kPass, "two ranks here summed", ""};
    for (const RankFindings& rank : ask(exchange_of_two(backend), "exchange", alive)) {
      for (const Finding& finding : rank.findings) {
        if (finding.health == Health::kPass) continue;
        result.health = Health::kWarn;
        result.found = finding.found;
        result.todo = "matters only for jobs with this backend";
        return result;
      }
    }
    return result;
  }

  std::vector<RankFindings> ask(const Overrides& overrides, const std::string& part, int alive) {
    const std::string check = part == "host" ? "ranks" : "exchange";
    const auto nothing = [&](int rank, std::string why) {
      return RankFindings{
          rank, "", {{check, Health::kFail, std::move(why), "see above, and try pushpull run"}}};
    };
    const auto config = flags_.load(environment_variable, overrides);
    if (!config) return {nothing(0, config.error().message())};
    const auto attempt = Attempt::prepare(
        *config, flags_.file(),
        {command_folder() + "/pushpull", "check", "--part", part, "--job-backend", backend_});
    if (!attempt) return {nothing(0, attempt.error().message())};
    fmt::print(stderr, "pushpull: {} {} rank{} by {}\n",
               part == "host" ? "examining" : "an exchange of", attempt->plan().workers.size(),
               attempt->plan().workers.size() == 1 ? "" : "s",
               part == "host" ? attempt->plan().engine : attempt->plan().backend);
    Answers answers;
    const JobEnd end =
        run_job(attempt->plan(), alive, [&](int rank, Stream stream, std::string_view bytes) {
          (stream == Stream::kOut ? answers.out : answers.err)[rank] += bytes;
        });
    std::vector<RankFindings> all;
    for (size_t rank = 0; rank < attempt->plan().workers.size(); ++rank) {
      const int number = static_cast<int>(rank);
      auto findings = decode_findings(last_line(answers.out[number]));
      if (findings) {
        all.push_back(std::move(*findings));
        continue;
      }
      std::string why = first_error(answers.err[number]);
      if (why.empty()) why = first_error(answers.err[-1]);
      if (why.empty()) why = fmt::format("it reported nothing; exit code {}", end.code);
      all.push_back(nothing(number, std::move(why)));
    }
    return all;
  }

  ConfigFlags flags_;
  bool json_ = false;
  std::string part_;
  std::string job_backend_ = "gloo";
  int size_ = 1;
  std::string engine_;
  std::string backend_;
  bool patient_ = false;
};

}  // namespace

std::unique_ptr<Command> make_check_command() { return std::make_unique<CheckCommand>(); }

}  // namespace pushpull::launcher
