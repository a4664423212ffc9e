#include "launcher/plan.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/environment.h"
#include "core/net/endpoint.h"
#include "core/text.h"
#include "launcher/environment_block.h"
#include "launcher/name_list.h"
#include "launcher/starters.h"

namespace pushpull::launcher {
namespace {

// What the launcher itself tells each worker.
constexpr std::array<std::string_view, 6> kGiven = {"PUSHPULL_RANK",       "PUSHPULL_SIZE",
                                                    "PUSHPULL_LOCAL_RANK", "PUSHPULL_LOCAL_SIZE",
                                                    "PUSHPULL_RENDEZVOUS", "MXNET_KVSTORE_BACKEND"};

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
    plan_.token = around_.token;
    plan_.address = around_.address;
    plan_.interface = config_.text("interface");
    plan_.ports = config_.text("ports");
    plan_.timeout = config_.duration("launch.timeout");
    plan_.grace = config_.duration("launch.grace");
    plan_.start_timeout = settings_.rendezvous_timeout;
    plan_.restarts = static_cast<int>(config_.integer("launch.restarts"));
    plan_.log_folder = config_.text("launch.log_dir");
    if (!plan_.log_folder.empty()) plan_.log_folder = absolute(plan_.log_folder);
    if (auto ok = decide_places(command); !ok) return fail(ok.error());
    if (auto ok = check(); !ok) return fail(ok.error());
    auto further = split_words(config_.text("launch.starter_args"));
    if (!further) {
      return fail(further.error().with_context(config_.value("launch.starter_args").origin));
    }
    if (is_script()) {
      const ScriptRequest request{around_.folder, around_.working_folder, config_file, workers_};
      plan_.script = sbatch_script(config_, request, *further, command);
      return std::move(plan_);
    }
    if (auto ok = decide_rendezvous(); !ok) return fail(ok.error());
    make_environment(config_file);
    plan_.share_cores = config_.text("launch.bind") == "share";
    for (int rank = 0; rank < workers_; ++rank) plan_.workers.push_back(worker(rank, command));
    const bool needs_starter = plan_.engine == "mpirun" || plan_.engine == "slurm";
    if (needs_starter) plan_.starter = starter(*further);
    plan_.notes.insert(plan_.notes.begin(), summary());
    return std::move(plan_);
  }

 private:
  bool in_allocation() const { return !base_.get("SLURM_JOB_ID").value_or("").empty(); }

  // For a job that Slurm starts later, from somewhere else.
  bool is_script() const { return plan_.engine == "slurm" && !in_allocation(); }

  std::string origin(std::string_view path) const { return config_.value(path).origin; }

  // The engine, the number of workers, and whether they are here.
  Result<void> decide_places(const std::vector<std::string>& command) {
    auto hosts = configured_hosts(config_, around_.hostfile, around_.own_names);
    if (!hosts) return fail(hosts.error());
    hosts_ = std::move(*hosts);
    const auto other = first_other_host(hosts_, around_.own_names);
    // --hosts a:2 b:2 would run b:2 on a.
    if (const std::string& first = command.front(); !hosts_.empty() && looks_like_host(first)) {
      return invalid(
          fmt::format("{} looks like a host, but stands where the command belongs; "
                      "separate hosts by commas: --hosts {},{}",
                      in_quotes(first), host_list(hosts_), first));
    }
    plan_.engine = config_.text("launch.engine");
    if (plan_.engine == "kubernetes") {
      return invalid(
          fmt::format("check looks at a Kubernetes job from inside its pods: kubectl exec POD -- "
                      "pushpull check -n 1 --job check; for this host leave out engine kubernetes "
                      "({}), or give --engine auto",
                      origin("launch.engine")));
    }
    if (plan_.engine == "auto") {
      const bool starter = plan_.backend == "mpi" || other != hosts_.end();
      plan_.engine = in_allocation() && hosts_.empty() ? "slurm" : starter ? "mpirun" : "local";
    }
    if (plan_.engine == "local" && other != hosts_.end()) {
      return invalid(
          fmt::format("engine local starts workers on this host only, but {} lists {}; "
                      "use --engine mpirun, or leave it out",
                      other->where, other->name));
    }
    if (plan_.engine == "slurm" && !hosts_.empty()) {
      return invalid(
          fmt::format("the hosts of a Slurm job come from its allocation; leave out "
                      "what {} says, or give --engine mpirun",
                      hosts_.front().where));
    }
    const int nodes = slurm_number({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}).value_or(1);
    plan_.remote = other != hosts_.end() || (plan_.engine == "slurm" && in_allocation()) ||
                   (plan_.engine == "mpirun" && in_allocation() && nodes > 1);
    // Who writes a script need not be where the interface is.
    if (!is_script() && !around_.address_error.empty()) return invalid(around_.address_error);
    return decide_workers();
  }

  static bool looks_like_host(std::string_view word) {
    const size_t colon = word.find(':');
    return colon != std::string_view::npos && colon > 0 && parse_integer(word.substr(colon + 1));
  }

  std::optional<int> slurm_number(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      const auto number = parse_integer(base_.get(name).value_or(""));
      if (number && *number >= 1 && *number <= 65536) return static_cast<int>(*number);
    }
    return std::nullopt;
  }

  Result<void> decide_workers() {
    const bool asked = settings_.size > 0;
    workers_ = std::max(settings_.size, 1);
    if (!hosts_.empty()) {
      const int slots = slots_of(hosts_);
      if (asked && workers_ > slots) {
        return invalid(fmt::format(
            "{} workers ({}) do not fit: the hosts take {} ({}, as {} says); give a host more, as "
            "in {}:{}",
            workers_, origin("workers"), slots, host_list(hosts_), hosts_.back().where,
            hosts_.back().name, hosts_.back().slots + workers_ - slots));
      }
      if (!asked) workers_ = slots;
      hosts_ = place(hosts_, workers_);
      return {};
    }
    if (plan_.engine == "local" || !in_allocation()) return {};
    const auto tasks = slurm_number({"SLURM_NTASKS", "SLURM_NPROCS"});
    if (asked && tasks && workers_ > *tasks) {
      return invalid(
          fmt::format("{} workers ({}) do not fit: the Slurm allocation is for {} tasks "
                      "(SLURM_NTASKS); allocate more by sbatch --ntasks={}",
                      workers_, origin("workers"), *tasks, workers_));
    }
    if (!asked) {
      workers_ = tasks ? *tasks : slurm_number({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}).value_or(1);
    }
    return {};
  }

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
    for (const auto shipped : split(find_config_key("backend")->choices, '|'))
      known.emplace_back(shipped);
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
    if (!rendezvous_.empty()) return check_reachable(origin);
    plan_.meet_at_rank_0 = plan_.remote;
    if (!plan_.remote) rendezvous_ = fmt::format("tcp://127.0.0.1:{}", around_.rendezvous_port);
    return {};
  }

  Result<void> check_reachable(const std::string& origin) const {
    const size_t start = rendezvous_.find("://") + 3;
    std::string_view place = std::string_view(rendezvous_).substr(start);
    place = place.substr(0, place.find('/'));
    if (const size_t at = place.rfind('@'); at != place.npos) place.remove_prefix(at + 1);
    const auto endpoint = parse_endpoint(place, 1);
    const bool here = endpoint && (endpoint->host == "localhost" || is_loopback(endpoint->host));
    if (!here || !plan_.remote || starts_with(rendezvous_, "file:")) return {};
    return invalid(
        fmt::format("the rendezvous {} ({}) is on the loopback interface, where workers "
                    "on other hosts do not reach it; leave it out, or name a host",
                    in_quotes(without_password(rendezvous_)), origin));
  }

  static uint16_t port(int number) { return static_cast<uint16_t>(number); }

  // Reads its configuration from standard input, so that the password is in no file and no
  // argument.
  void start_redis() {
    const std::string here = plan_.remote ? around_.address : "127.0.0.1";
    rendezvous_ = fmt::format("redis://{}/0", Endpoint{here, port(around_.redis_port)}.to_string());
    Process redis;
    redis.name = "redis";
    redis.argv = {"redis-server", "-"};
    redis.environment = base_.entries();
    redis.input_text = fmt::format(
        "bind {}\nport {}\nunixsocket \"\"\nprotected-mode yes\ndaemonize no\nsave \"\"\n"
        "appendonly no\nloglevel warning\nlogfile \"\"\nalways-show-logo no\nrequirepass {}\n",
        here == "127.0.0.1" ? here : "127.0.0.1 " + here, around_.redis_port,
        around_.redis_password);
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
    starter_environment_ = base_;
    starter_environment_.remove_if([](auto name) { return name == "PUSHPULL_SECRET"; });
    const std::string path = base_.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
    if (plan_.remote) keep_forwarded();
    base_.set("PATH", around_.folder + ":" + path);
    pass_settings_on(config_file);
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

  // What workers on other hosts get beyond what they find there.
  void keep_forwarded() {
    const bool automatic = config_.text("launch.forward") == "auto";
    const NameList names(automatic ? kForwarded : config_.text("launch.forward"));
    base_.remove_if([&](std::string_view name) { return !names.has(name); });
  }

  // Workers here read the same file and environment; flags they only learn from here. On another
  // host the file, and files of secrets, may not be there.
  void pass_settings_on(const std::string& config_file) {
    if (plan_.remote) {
      base_.remove_if([](auto name) { return name == "PUSHPULL_CONFIG"; });
    } else if (!config_file.empty()) {
      base_.set("PUSHPULL_CONFIG", absolute(config_file));
    }
    for (const ConfigKey& key : config_schema()) {
      const ConfigValue& value = config_.value(key.path);
      const bool for_workers = !key.variable.empty() && !starts_with(key.path, "launch.");
      if (!for_workers || key.per_process) continue;
      const bool is_file = key.path == "secret_file" || key.path == "redis.password_file";
      if (plan_.remote && is_file) {
        base_.remove_if([&](auto name) { return name == key.variable; });
      } else if (plan_.remote ? value.origin != "default" : starts_with(value.origin, "flag ")) {
        base_.set(key.variable, value.text);
      }
    }
    if (!plan_.remote) return;
    if (!settings_.secret.empty()) base_.set("PUSHPULL_SECRET", settings_.secret);
    if (!settings_.redis_password.empty())
      base_.set("PUSHPULL_REDIS_PASSWORD", settings_.redis_password);
  }

  Process worker(int rank, const std::vector<std::string>& command) const {
    EnvironmentBlock environment = base_;
    environment.set("PUSHPULL_RANK", std::to_string(rank));
    if (!plan_.remote) {
      environment.set("PUSHPULL_LOCAL_RANK", std::to_string(rank));
      environment.set("PUSHPULL_LOCAL_SIZE", std::to_string(workers_));
    }
    Process process;
    process.name = fmt::format("rank {}", rank);
    process.argv = command;
    process.environment = environment.entries();
    if (plan_.share_cores && plan_.engine == "local") {
      process.cores = share_of_cores(around_.cores, rank, workers_);
    }
    // A terminal goes to nobody: workers are no foreground processes and would be stopped.
    const bool gets_input = rank == 0 && plan_.engine == "local" && !around_.is_terminal;
    process.input = gets_input ? Input::kInherited : Input::kNothing;
    return process;
  }

  Process starter(const std::vector<std::string>& further) const {
    StarterRequest request;
    request.shim = {around_.folder + "/pushpull", std::string(kShimCommand)};
    request.environment = starter_environment_.entries();
    request.token = plan_.token;
    request.workers = workers_;
    request.hosts = plan_.remote ? hosts_ : std::vector<HostSlots>();
    request.is_root = around_.is_root;
    request.forward = config_.text("launch.forward");
    request.mpi = plan_.backend == "mpi";
    request.further = further;
    return plan_.engine == "slurm" ? srun(request) : mpirun(request);
  }

  std::string places() const {
    if (plan_.engine == "slurm") {
      return fmt::format("in Slurm job {}", starter_environment_.get("SLURM_JOB_ID").value_or("?"));
    }
    if (!plan_.remote) return "on this host";
    if (hosts_.empty()) return "on the hosts of the allocation";
    return fmt::format("on {} host{} ({})", hosts_.size(), hosts_.size() == 1 ? "" : "s",
                       host_list(hosts_));
  }

  std::string summary() const {
    std::string text = fmt::format("{} worker{} {}, backend {}", workers_, workers_ == 1 ? "" : "s",
                                   places(), plan_.backend);
    if (plan_.starter) text += ", started by " + plan_.starter->name;
    if (!rendezvous_.empty()) text += ", meeting at " + without_password(rendezvous_);
    if (plan_.meet_at_rank_0) text += ", meeting at rank 0";
    return text +
           (plan_.share_cores ? ", bound to shares of the cores" : ", free to use all cores");
  }

  std::string absolute(const std::string& path) const {
    return starts_with(path, "/") ? path : around_.working_folder + "/" + path;
  }

  const Config& config_;
  const Surroundings& around_;
  EnvironmentBlock base_;  // of the workers
  EnvironmentBlock starter_environment_{{}};
  std::vector<HostSlots> hosts_;
  Settings settings_;
  Plan plan_;
  int workers_ = 1;
  std::string rendezvous_;
};

}  // namespace

Result<Plan> make_plan(const Config& config, const std::string& config_file,
                       const std::vector<std::string>& command, const Surroundings& around) {
  return Planner(config, around).make(config_file, command);
}

}  // namespace pushpull::launcher
