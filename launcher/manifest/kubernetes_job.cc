#include "launcher/manifest/kubernetes_job.h"

#include <algorithm>
#include <regex>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "launcher/manifest/yaml_text.h"

namespace pushpull::launcher {
namespace {

// Names get "-redis", and pods "-<rank>-<5 letters>"; a host name has 63 characters.
constexpr size_t kLongestName = 50;
// Where a worker listens unless `ports` says so: one is used, the others are there for the moment
// in which a port is not free yet.
constexpr Ports kDefaultPorts = {29501, 29504};
constexpr int kStorePort = 29500;
// Nodes are drained and pods evicted in the life of any cluster.
constexpr int kRestarts = 6;

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

bool matches(const std::string& text, const char* pattern) {
  return std::regex_match(text, std::regex(pattern));
}

int64_t whole_seconds(Duration duration) {
  return std::chrono::ceil<std::chrono::seconds>(duration).count();
}

// "My job_7" -> "my-job-7".
std::string object_name(const std::string& job) {
  std::string name;
  for (const char c : job) {
    const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    const bool good = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (good) name += lower;
    if (!good && !name.empty() && name.back() != '-') name += '-';
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  // Names of Services begin with a letter.
  return !name.empty() && name[0] >= '0' && name[0] <= '9' ? "job-" + name : name;
}

bool is_secret_variable(std::string_view name) {
  return std::any_of(config_schema().begin(), config_schema().end(), [&](const ConfigKey& key) {
    return key.type == ConfigType::kSecret && key.variable == name;
  });
}

class Maker {
 public:
  Maker(const Config& config, const MadeUp& made_up) : config_(config), made_up_(made_up) {}

  Result<KubernetesJob> make(const std::vector<std::string>& command) {
    auto settings = config_.settings();
    if (!settings) return fail(settings.error());
    settings_ = std::move(*settings);
    job_.backend = settings_.backend;
    job_.workers = std::max(settings_.size, 1);
    job_.command = command;
    job_.environment = config_.map("launch.env");
    for (auto step :
         {&Maker::check, &Maker::refuse_what_starts_elsewhere, &Maker::name, &Maker::take_settings,
          &Maker::checkpoint, &Maker::ports, &Maker::rendezvous, &Maker::secrets}) {
      if (auto ok = (this->*step)(); !ok) return fail(ok.error());
    }
    job_.configuration = worker_configuration();
    return std::move(job_);
  }

 private:
  std::string origin(std::string_view path) const {
    return fmt::format("{} ({})", path, config_.value(path).origin);
  }

  Result<void> check() {
    if (job_.command.empty()) {
      return invalid(
          "no command given; write it after --, as in pushpull manifest -c job.yaml -- python "
          "train.py");
    }
    if (job_.backend == "mpi") {
      return invalid(fmt::format(
          "backend mpi ({}) needs an MPI starter, which a Kubernetes Job is not; use gloo-redis or "
          "gloo",
          config_.value("backend").origin));
    }
    for (const auto& [name, value] : job_.environment) {
      if (!matches(name, "[-._a-zA-Z][-._a-zA-Z0-9]*")) {
        return invalid(fmt::format("{} sets {}, which cannot be the name of a variable in a pod",
                                   origin("launch.env"), in_quotes(name)));
      }
      if (name == "PUSHPULL_SIZE" || name == "PUSHPULL_RANK" || name == "PUSHPULL_CONFIG" ||
          name == "MXNET_KVSTORE_BACKEND" || name == "JOB_COMPLETION_INDEX") {
        return invalid(fmt::format("{} sets {}, which each worker is given by the manifest",
                                   origin("launch.env"), name));
      }
      const bool secret = is_secret_variable(name);
      if (secret) {
        return invalid(fmt::format(
            "{} sets {}, but a secret belongs in a Secret; name it by kubernetes.secret",
            origin("launch.env"), name));
      }
    }
    return {};
  }

  // Settings of the launch that nothing in a cluster would follow.
  Result<void> refuse_what_starts_elsewhere() {
    for (const char* path : {"launch.starter_args", "launch.hosts", "launch.hostfile",
                             "launch.bind", "launch.forward"}) {
      if (config_.text(path) == find_config_key(path)->default_text) continue;
      return invalid(fmt::format(
          "{} is {}, which means nothing to a Kubernetes Job; leave it out (kubernetes.cpu, "
          "kubernetes.node_selector and launch.env say what pods get)",
          origin(path), in_quotes(config_.text(path))));
    }
    return {};
  }

  Result<void> name() {
    job_.job = config_.is_default("job") ? "pushpull" : settings_.job;
    job_.name = object_name(job_.job);
    if (job_.name.empty()) {
      return invalid(fmt::format(
          "{} has no letter or digit that a Kubernetes name could be made of", origin("job")));
    }
    if (!made_up_.suffix.empty()) {
      job_.name += "-" + made_up_.suffix;
      job_.job += "-" + made_up_.suffix;
    }
    if (job_.name.size() <= kLongestName) return {};
    return invalid(
        fmt::format("{} is too long for Kubernetes: '{}' has {} characters, and {} are "
                    "possible",
                    origin("job"), job_.name, job_.name.size(), kLongestName));
  }

  Result<void> take(std::string_view path, std::string* into, const char* pattern,
                    std::string_view what) {
    *into = config_.text(path);
    if (into->empty() || matches(*into, pattern)) return {};
    return invalid(fmt::format("{} is {}, which is not {}", origin(path), in_quotes(*into), what));
  }

  Result<void> take_settings() {
    constexpr const char* label = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?";
    constexpr const char* name = "[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?";
    constexpr const char* quantity = "[0-9]+(\\.[0-9]*)?([munkMGTPE]|[KMGTPE]i|[eE][0-9]+)?";
    constexpr const char* image = "[^\\s\"'`$\\\\]+";
    struct Row {
      std::string_view path;
      std::string* into;
      const char* pattern;
      std::string_view what;
    };
    const std::vector<Row> rows = {
        {"kubernetes.image", &job_.image, image, "the name of an image"},
        {"kubernetes.namespace", &job_.name_space, label, "the name of a namespace"},
        {"kubernetes.pull_policy", &job_.pull_policy, ".*", ""},
        {"kubernetes.pull_secret", &job_.pull_secret, name, "the name of a Secret"},
        {"kubernetes.secret", &job_.secret_name, name, "the name of a Secret"},
        {"kubernetes.service_account", &job_.service_account, name, "the name of an account"},
        {"kubernetes.cpu", &job_.cpu, quantity, "a quantity such as 2 or 500m"},
        {"kubernetes.memory", &job_.memory, quantity, "a quantity such as 4Gi"},
        {"kubernetes.shared_memory", &job_.shared_memory, quantity, "a quantity such as 1Gi"},
    };
    for (const Row& row : rows) {
      if (auto ok = take(row.path, row.into, row.pattern, row.what); !ok) return ok;
    }
    if (job_.image.empty()) {
      return invalid(
          "nothing says which image the workers run; write kubernetes.image in the file, or give "
          "--image");
    }
    job_.limits = config_.map("kubernetes.limits");
    for (const auto& [resource, amount] : job_.limits) {
      if (matches(amount, quantity)) continue;
      return invalid(fmt::format("{} gives {} of {}, which is not a quantity",
                                 origin("kubernetes.limits"), in_quotes(amount), resource));
    }
    job_.node_selector = config_.map("kubernetes.node_selector");
    job_.annotations = config_.map("kubernetes.annotations");
    job_.user = config_.integer("kubernetes.user");
    job_.restarts =
        config_.is_default("launch.restarts") ? kRestarts : config_.integer("launch.restarts");
    job_.metrics_port = static_cast<int>(config_.integer("kubernetes.metrics_port"));
    job_.deadline_seconds = whole_seconds(config_.duration("launch.timeout"));
    job_.grace_seconds = std::max<int64_t>(whole_seconds(config_.duration("launch.grace")), 1);
    return {};
  }

  Result<void> checkpoint() {
    const std::string text = config_.text("kubernetes.checkpoint");
    if (text.empty()) return {};
    std::smatch part;
    Checkpoint& at = job_.checkpoint;
    at.given = kCheckpointFolder;
    if (std::regex_match(text, part, std::regex("pvc://([a-z0-9][-.a-z0-9]*)/?(.*)"))) {
      at.kind = Checkpoint::Kind::kClaim;
      at.place = part[1];
      at.folder = part[2];
    } else if (std::regex_match(text, part, std::regex("nfs://([^/]+)(/.+)"))) {
      at.kind = Checkpoint::Kind::kNfs;
      at.place = part[1];
      at.folder = part[2];
    } else if (std::regex_match(text, part, std::regex("hostpath://(/.+)"))) {
      at.kind = Checkpoint::Kind::kHostPath;
      at.folder = part[1];
    } else if (std::regex_match(text, std::regex("[a-z0-9]+://.+")) &&
               !std::regex_match(text, std::regex("(pvc|nfs|hostpath):.*"))) {
      at.kind = Checkpoint::Kind::kElsewhere;
      at.given = text;
    } else {
      return invalid(fmt::format(
          "{} is {}; write pvc://claim/folder, nfs://server/path, hostpath:///path or another URL",
          origin("kubernetes.checkpoint"), in_quotes(without_password(text))));
    }
    if (without_password(text) != text) {
      return invalid(fmt::format("{} holds a password, which belongs in a Secret",
                                 origin("kubernetes.checkpoint")));
    }
    return {};
  }

  Result<void> ports() {
    job_.ports = kDefaultPorts;
    if (!settings_.ports.empty()) {
      const size_t dash = settings_.ports.find('-');
      job_.ports.first = static_cast<int>(*parse_integer(settings_.ports.substr(0, dash)));
      job_.ports.last = dash == std::string::npos
                            ? job_.ports.first
                            : static_cast<int>(*parse_integer(settings_.ports.substr(dash + 1)));
    }
    const int metrics = job_.metrics_port;
    if (metrics < job_.ports.first || metrics > job_.ports.last) return {};
    return invalid(fmt::format("{} lies within the ports where workers listen, {}-{}",
                               origin("kubernetes.metrics_port"), job_.ports.first,
                               job_.ports.last));
  }

  Result<void> rendezvous() {
    const std::string& url = settings_.rendezvous;
    const bool is_redis = url.starts_with("redis://") || url.starts_with("rediss://");
    const bool start = config_.boolean("redis.start");
    if (start && !url.empty()) {
      return invalid(fmt::format("{} and a rendezvous URL ({}) exclude each other",
                                 origin("redis.start"), config_.value("rendezvous.url").origin));
    }
    if (start) {
      if (job_.backend != "gloo-redis" && job_.backend != "gloo") return {};
      job_.redis = KubernetesRedis{config_.text("kubernetes.redis_image"), settings_.redis_user};
      if (job_.redis->user.empty()) job_.redis->user = "pushpull";
      if (!matches(job_.redis->user, "[-_.a-zA-Z0-9]+") || job_.redis->user == "default") {
        return invalid(fmt::format("{} is {}, which is no name for the user that is made there",
                                   origin("redis.user"), in_quotes(job_.redis->user)));
      }
      job_.rendezvous = fmt::format("redis://{}-redis:{}/0", job_.name, kRedisPort);
    } else if (is_redis) {
      job_.rendezvous = url;
    } else if (job_.backend == "gloo-redis") {
      return invalid(
          "backend gloo-redis needs a Redis server; write 'redis: {start: true}' to deploy one "
          "with "
          "the job, or name one by rendezvous.url");
    } else if (job_.backend != "self") {
      return meet_at_rank_0();
    }
    return {};
  }

  Result<void> meet_at_rank_0() {
    if (settings_.rendezvous.starts_with("tcp://")) {
      return invalid(fmt::format(
          "{} names an address, but pods have none before they run; leave it out to meet at rank "
          "0, or use redis: {{start: true}}",
          origin("rendezvous.url")));
    }
    if (!settings_.rendezvous.empty()) {
      job_.rendezvous = settings_.rendezvous;  // a folder that the script's volume holds
      return {};
    }
    job_.store_port = kStorePort;
    if (job_.ports.first <= kStorePort && kStorePort <= job_.ports.last) {
      return invalid(fmt::format("{} holds {}, where rank 0 serves the rendezvous; take others",
                                 origin("ports"), kStorePort));
    }
    job_.rendezvous = fmt::format("tcp://{0}-0.{0}:{1}", job_.name, kStorePort);
    return {};
  }

  Result<void> secrets() {
    job_.needs_redis_password = job_.redis || !settings_.redis_password.empty() ||
                                (job_.rendezvous.starts_with("redis") &&
                                 (!settings_.redis_user.empty() || !job_.secret_name.empty()));
    if (!job_.secret_name.empty()) return {};
    job_.secret_name = job_.name;
    job_.secrets["secret"] = settings_.secret.empty() ? made_up_.secret : settings_.secret;
    if (!job_.needs_redis_password) return say_about_secret();
    if (!job_.redis && settings_.redis_password.empty()) {
      return invalid(fmt::format(
          "{} names a user, but nothing gives its password; set PUSHPULL_REDIS_PASSWORD or "
          "PUSHPULL_REDIS_PASSWORD_FILE here, or name a Secret by kubernetes.secret",
          origin("redis.user")));
    }
    job_.secrets["redis-password"] =
        settings_.redis_password.empty() ? made_up_.redis_password : settings_.redis_password;
    return say_about_secret();
  }

  Result<void> say_about_secret() {
    job_.notes.push_back(fmt::format(
        "the Secret '{}' in this output holds {}; kubernetes.secret names one that is there "
        "already "
        "and leaves it out",
        job_.secret_name,
        settings_.secret.empty() ? "a secret that was made for it" : "the job's secret"));
    return {};
  }

  // Settings that are not the default, as far as they are the workers' business; what the manifest
  // decides stands first.
  std::string worker_configuration() const {
    nlohmann::ordered_json out;
    out["backend"] = job_.backend;
    out["workers"] = job_.workers;
    out["job"] = job_.job;
    if (!job_.rendezvous.empty()) out["rendezvous"]["url"] = job_.rendezvous;
    out["ports"] = fmt::format("{}-{}", job_.ports.first, job_.ports.last);
    out["secret_file"] = std::string(kSecretFolder) + "/secret";
    const std::string user = job_.redis ? job_.redis->user : settings_.redis_user;
    if (job_.needs_redis_password) {
      if (!user.empty()) out["redis"]["user"] = user;
      out["redis"]["password_file"] = std::string(kSecretFolder) + "/redis-password";
    }
    for (const ConfigKey& key : config_schema()) {
      const std::string path(key.path);
      const bool for_workers = key.allowed_in_file() && key.type != ConfigType::kStringMap &&
                               !path.starts_with("kubernetes.") && !path.starts_with("launch.") &&
                               !path.starts_with("redis.");
      if (!for_workers || config_.is_default(path)) continue;
      const nlohmann::ordered_json::json_pointer at(
          "/" + std::regex_replace(path, std::regex("\\."), "/"));
      if (!out.contains(at)) out[at] = config_.text(path);
    }
    return to_yaml(out);
  }

  const Config& config_;
  const MadeUp& made_up_;
  Settings settings_;
  KubernetesJob job_;
};

}  // namespace

Result<KubernetesJob> make_kubernetes_job(const Config& config,
                                          const std::vector<std::string>& command,
                                          const MadeUp& made_up) {
  return Maker(config, made_up).make(command);
}

}  // namespace pushpull::launcher
