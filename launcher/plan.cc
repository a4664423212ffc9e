#include "launcher/plan.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "core/environment.h"
#include "core/text.h"
#include "launcher/environment_block.h"

namespace pushpull::launcher {
namespace {

// What the launcher itself tells each worker.
constexpr std::array<std::string_view, 5> kGiven = {"PUSHPULL_RANK", "PUSHPULL_SIZE",
                                                    "PUSHPULL_LOCAL_RANK", "PUSHPULL_RENDEZVOUS",
                                                    "MXNET_KVSTORE_BACKEND"};

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

bool starts_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

class Planner {
 public:
  Planner(const Config& config, const Surroundings& around)
      : config_(config), around_(around), base_(around.environment) {}

  Result<Plan> make(const std::string& config_file, const std::vector<std::string>& command) {
    auto settings = config_.settings();
    if (!settings) return fail(settings.error());
    settings_ = std::move(*settings);
    if (command.empty()) {
      return invalid(
          "no command given; write it after --, as in pushpull run -n 2 -- python train.py");
    }
    plan_.backend = settings_.backend;
    plan_.run = around_.run;
    plan_.engine = config_.text("launch.engine");
    if (plan_.engine == "auto") plan_.engine = plan_.backend == "mpi" ? "mpirun" : "local";
    plan_.timeout = config_.duration("launch.timeout");
    plan_.grace = config_.duration("launch.grace");
    plan_.start_timeout = settings_.rendezvous_timeout;
    plan_.log_folder = config_.text("launch.log_dir");
    workers_ = std::max(settings_.size, 1);
    if (auto ok = check(); !ok) return fail(ok.error());
    if (auto ok = decide_rendezvous(); !ok) return fail(ok.error());
    make_environment(config_file);
    for (int rank = 0; rank < workers_; ++rank) plan_.workers.push_back(worker(rank, command));
    if (plan_.engine == "mpirun") plan_.starter = mpirun();
    plan_.notes.insert(plan_.notes.begin(), summary());
    return std::move(plan_);
  }

 private:
  Result<void> check() const {
    if (auto ok = check_backend(); !ok) return ok;
    if (plan_.backend == "mpi" && plan_.engine == "local") {
      return invalid("the mpi backend needs an MPI starter; use --engine mpirun, or leave it out");
    }
    if (plan_.backend == "self" && workers_ != 1) {
      return invalid(fmt::format("backend self is for one worker, but {} were asked for ({})",
                                 workers_, config_.value("workers").origin));
    }
    for (const auto& [name, value] : config_.map("launch.env")) {
      if (std::find(kGiven.begin(), kGiven.end(), name) != kGiven.end()) {
        return invalid(
            fmt::format("launch.env sets {}, which the launcher gives to each worker "
                        "itself ({})",
                        name, config_.value("launch.env").origin));
      }
    }
    return check_not_started_as_many();
  }

  Result<void> check_backend() const {
    std::vector<std::string> known = around_.backends;
    const std::string_view shipped = find_config_key("backend")->choices;
    for (size_t start = 0; start < shipped.size();) {
      const size_t end = std::min(shipped.find('|', start), shipped.size());
      known.emplace_back(shipped.substr(start, end - start));
      start = end + 1;
    }
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    if (std::find(known.begin(), known.end(), plan_.backend) != known.end()) return {};
    const std::string near = nearest_name(plan_.backend, known);
    return invalid(fmt::format("unknown backend {} ({}); known are {}{}", in_quotes(plan_.backend),
                               config_.value("backend").origin, fmt::join(known, ", "),
                               near.empty() ? "" : "; did you mean '" + near + "'?"));
  }

  // `mpirun -n 4 pushpull run …` would start four jobs.
  Result<void> check_not_started_as_many() const {
    for (const std::string_view name :
         {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
      const auto size = parse_integer(base_.get(name).value_or("1"));
      if (size && *size > 1) {
        return invalid(
            fmt::format("pushpull run was itself started as one of {0} processes "
                        "({1}={0}); start the command directly, or unset {1}",
                        *size, name));
      }
    }
    return {};
  }

  Result<void> decide_rendezvous() {
    rendezvous_ = config_.text("rendezvous.url");
    const std::string origin = config_.value("rendezvous.url").origin;
    const bool redis_url =
        starts_with(rendezvous_, "redis://") || starts_with(rendezvous_, "rediss://");
    if (plan_.backend == "mpi" || plan_.backend == "self") {
      rendezvous_.clear();  // these need none; the URL may be there for another backend
      return {};
    }
    if (config_.boolean("redis.start")) {
      if (!rendezvous_.empty()) {
        return invalid(fmt::format("redis.start ({}) and a rendezvous URL ({}) exclude each other",
                                   config_.value("redis.start").origin, origin));
      }
      start_redis();
      return {};
    }
    if (plan_.backend == "gloo-redis" && rendezvous_.empty()) {
      return invalid(
          "backend gloo-redis needs to know its Redis server; give --rendezvous "
          "redis://host:6379/0, or write 'redis: {start: true}' in the configuration file");
    }
    if (plan_.backend == "gloo-redis" && !redis_url) {
      return invalid(
          fmt::format("backend gloo-redis meets at a Redis server, but the rendezvous URL is "
                      "{} ({}); use backend gloo, or a redis:// URL",
                      in_quotes(without_password(rendezvous_)), origin));
    }
    if (rendezvous_.empty()) {
      rendezvous_ = fmt::format("tcp://127.0.0.1:{}", around_.rendezvous_port);
    }
    return {};
  }

  // Reads its configuration from standard input, so that the password is in no file and no
  // argument.
  void start_redis() {
    rendezvous_ = fmt::format("redis://127.0.0.1:{}/0", around_.redis_port);
    Process redis;
    redis.name = "redis";
    redis.argv = {"redis-server", "-"};
    redis.environment = base_.entries();
    redis.input_text = fmt::format(
        "bind 127.0.0.1\nport {}\nunixsocket \"\"\nprotected-mode yes\ndaemonize no\nsave \"\"\n"
        "appendonly no\nloglevel warning\nlogfile \"\"\nalways-show-logo no\nrequirepass {}\n",
        around_.redis_port, around_.redis_password);
    plan_.redis = std::move(redis);
    plan_.redis_port = around_.redis_port;
  }

  void make_environment(const std::string& config_file) {
    const auto dmlc = base_.remove_if([](auto name) { return starts_with(name, "DMLC_"); });
    if (!dmlc.empty()) {
      plan_.notes.push_back(
          fmt::format("removed {} from the workers' environment, where MXNet would "
                      "take it for its parameter server",
                      fmt::join(dmlc, ", ")));
    }
    const auto& foreign = starter_variables();
    base_.remove_if([&](std::string_view name) {
      return std::find(foreign.begin(), foreign.end(), name) != foreign.end();
    });
    base_.set("PATH",
              around_.folder + ":" + base_.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
    if (!config_file.empty()) base_.set("PUSHPULL_CONFIG", absolute(config_file));
    // The workers read the same file and environment; flags they only learn from here.
    for (const ConfigKey& key : config_schema()) {
      const ConfigValue& value = config_.value(key.path);
      const bool for_workers = !key.variable.empty() && !starts_with(key.path, "launch.");
      if (for_workers && starts_with(value.origin, "flag ")) {
        base_.set(key.variable, value.text);
      }
    }
    for (const auto& [name, value] : config_.map("launch.env")) base_.set(name, value);
    base_.set("MXNET_KVSTORE_BACKEND", plan_.backend);
    base_.set("PUSHPULL_SIZE", std::to_string(workers_));
    const bool named = !config_.is_default("job");
    base_.set("PUSHPULL_JOB", named ? settings_.job : "run-" + around_.run);
    if (settings_.secret.empty()) base_.set("PUSHPULL_SECRET", around_.secret);
    if (plan_.redis) base_.set("PUSHPULL_REDIS_PASSWORD", around_.redis_password);
    base_.remove_if([](auto name) { return name == "PUSHPULL_RENDEZVOUS"; });
    if (!rendezvous_.empty()) base_.set("PUSHPULL_RENDEZVOUS", rendezvous_);
  }

  Process worker(int rank, const std::vector<std::string>& command) const {
    EnvironmentBlock environment = base_;
    environment.set("PUSHPULL_RANK", std::to_string(rank));
    environment.set("PUSHPULL_LOCAL_RANK", std::to_string(rank));
    Process process;
    process.name = fmt::format("rank {}", rank);
    process.argv = command;
    process.environment = environment.entries();
    if (config_.text("launch.bind") == "share") process.cores = share(rank);
    // A terminal goes to nobody: workers are no foreground processes and would be stopped.
    const bool gets_input = rank == 0 && plan_.engine == "local" && !around_.is_terminal;
    process.input = gets_input ? Input::kInherited : Input::kNothing;
    return process;
  }

  // The cores of this host in contiguous shares; with more workers than cores, workers share cores.
  std::vector<int> share(int rank) const {
    const size_t cores = around_.cores.size();
    if (cores == 0) return {};
    const auto n = static_cast<size_t>(workers_);
    const auto r = static_cast<size_t>(rank);
    if (n >= cores) return {around_.cores[r % cores]};
    const auto first = around_.cores.begin() + static_cast<ptrdiff_t>(r * cores / n);
    const auto last = around_.cores.begin() + static_cast<ptrdiff_t>((r + 1) * cores / n);
    return {first, last};
  }

  // Open MPI's own binding would put all threads of a rank on one core, and its own forwarding of
  // environment and output breaks names, values and lines: the shim gets and gives them directly.
  Process mpirun() const {
    Process process;
    process.name = "mpirun";
    process.argv = {"mpirun"};
    if (around_.is_root) process.argv.push_back("--allow-run-as-root");
    for (const char* word : {"--oversubscribe", "--bind-to", "none", "-n"})
      process.argv.push_back(word);
    process.argv.push_back(std::to_string(workers_));
    process.argv.push_back(around_.folder + "/pushpull");
    process.argv.emplace_back(kShimCommand);
    EnvironmentBlock environment = base_;
    environment.remove_if([](auto name) { return name == "PUSHPULL_SECRET"; });
    process.environment = environment.entries();
    return process;
  }

  std::string summary() const {
    std::string text = fmt::format("{} worker{} on this host, backend {}", workers_,
                                   workers_ == 1 ? "" : "s", plan_.backend);
    if (plan_.engine != "local") text += ", started by " + plan_.engine;
    if (!rendezvous_.empty()) text += ", meeting at " + without_password(rendezvous_);
    const bool bound = !plan_.workers.front().cores.empty();
    return text + (bound ? ", bound to shares of the cores" : ", free to use all cores");
  }

  std::string absolute(const std::string& path) const {
    return starts_with(path, "/") ? path : around_.working_folder + "/" + path;
  }

  const Config& config_;
  const Surroundings& around_;
  EnvironmentBlock base_;
  Settings settings_;
  Plan plan_;
  int workers_ = 1;
  std::string rendezvous_;
};

bool is_secret(std::string_view name) {
  const auto& schema = config_schema();
  return std::any_of(schema.begin(), schema.end(), [&](const ConfigKey& key) {
    return key.type == ConfigType::kSecret && key.variable == name;
  });
}

std::string joined(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& word : argv) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

// "env -u GONE NAME=value command": what has to be changed for this process.
std::string describe(const Process& process, const std::vector<std::string>& base) {
  const std::set<std::string_view> before(base.begin(), base.end());
  std::string line = "env";
  for (const std::string& entry : base) {
    const std::string_view name = EnvironmentBlock::name_of(entry);
    const bool kept = std::any_of(process.environment.begin(), process.environment.end(),
                                  [&](auto& e) { return EnvironmentBlock::name_of(e) == name; });
    if (!kept) line += " -u " + shell_quoted(name);
  }
  for (const std::string& entry : process.environment) {
    if (before.count(entry) != 0) continue;
    const std::string_view name = EnvironmentBlock::name_of(entry);
    const std::string_view value = std::string_view(entry).substr(name.size() + 1);
    const std::string before_it = EnvironmentBlock(base).get(name).value_or("");
    std::string shown = is_secret(name) ? "***" : shell_quoted(without_password(value));
    if (name == "PATH" && !before_it.empty() && value.substr(value.find(':') + 1) == before_it) {
      shown = shell_quoted(value.substr(0, value.find(':'))) + ":\"$PATH\"";
    }
    line += fmt::format(" {}={}", name, shown);
  }
  line += " " + joined(process.argv);
  if (process.cores.empty()) return line;
  return fmt::format("taskset -c {} {}", fmt::join(process.cores, ","), line);
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  constexpr std::string_view plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=:,./@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\"'\"'" : std::string(1, c);
  return out + "'";
}

std::string describe(const Plan& plan, const std::vector<std::string>& base) {
  std::string text;
  for (const std::string& note : plan.notes) text += fmt::format("# {}\n", note);
  if (plan.redis) text += fmt::format("# redis\n{}\n", joined(plan.redis->argv));
  if (plan.starter) text += fmt::format("# starts the workers\n{}\n", joined(plan.starter->argv));
  for (const Process& worker : plan.workers) {
    text += fmt::format("# {}\n{}\n", worker.name, describe(worker, base));
  }
  return text;
}

std::string log_file(const std::string& folder, int rank) {
  return fmt::format("{}/rank-{}.log", folder, rank);
}

Result<Plan> make_plan(const Config& config, const std::string& config_file,
                       const std::vector<std::string>& command, const Surroundings& around) {
  return Planner(config, around).make(config_file, command);
}

}  // namespace pushpull::launcher
