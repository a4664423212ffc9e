#include "launcher/manifest/manifest.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "launcher/manifest/parts.h"
#include "launcher/manifest/yaml_text.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

using Json = nlohmann::ordered_json;

// Exit codes after which a worker may be started again: kExitRestart, and what TERM and KILL leave.
// Everything else is the script's own failure.
constexpr int kKilled = 128 + 9;
constexpr int kTerminated = 128 + 15;

// Kubernetes puts variables in the place of $(NAME) in commands and values; $$ stands for $.
std::string without_expansion(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '$' && i + 1 < text.size() && (text[i + 1] == '$' || text[i + 1] == '('))
      out += '$';
  }
  return out;
}

Json secret(const KubernetesJob& job) {
  Json object = object_of(job, "v1", "Secret", job.secret_name, "");
  object["type"] = "Opaque";
  object["stringData"] = job.secrets;
  return object;
}

Json config_map(const KubernetesJob& job) {
  Json object = object_of(job, "v1", "ConfigMap", job.name, kWorker);
  object["data"] = {{"pushpull.yaml", job.configuration}};
  return object;
}

// Host names for the workers' addresses: <name>-<rank>.<name>.
Json service(const KubernetesJob& job) {
  Json object = object_of(job, "v1", "Service", job.name, kWorker);
  Json ports = Json::array();
  if (job.store_port != 0) {
    ports.push_back({{"name", "rendezvous"}, {"port", job.store_port}});
  }
  for (int port = job.ports.first; port <= std::min(job.ports.last, job.ports.first + 15); ++port) {
    ports.push_back({{"name", fmt::format("worker-{}", port)}, {"port", port}});
  }
  object["spec"] = {{"clusterIP", "None"},
                    // They find each other before any of them is ready.
                    {"publishNotReadyAddresses", true},
                    {"selector", selecting_labels(job, kWorker)},
                    {"ports", ports}};
  return object;
}

Json network_policy(const KubernetesJob& job) {
  Json object = object_of(job, "networking.k8s.io/v1", "NetworkPolicy", job.name, kWorker);
  Json ports = Json::array();
  if (job.store_port != 0) ports.push_back({{"protocol", "TCP"}, {"port", job.store_port}});
  ports.push_back({{"protocol", "TCP"}, {"port", job.ports.first}, {"endPort", job.ports.last}});
  Json rules = Json::array(
      {{{"from",
         Json::array({{{"podSelector", {{"matchLabels", selecting_labels(job, kWorker)}}}}})},
        {"ports", ports}}});
  if (job.metrics_port != 0) {  // Prometheus is somewhere else, and only reads
    rules.push_back({{"ports", Json::array({{{"protocol", "TCP"}, {"port", job.metrics_port}}})}});
  }
  object["spec"] = {{"podSelector", {{"matchLabels", selecting_labels(job, kWorker)}}},
                    {"policyTypes", Json::array({"Ingress"})},
                    {"ingress", rules}};
  return object;
}

Json environment(const KubernetesJob& job) {
  Json list = Json::array();
  const auto set = [&](const std::string& name, const std::string& value) {
    list.push_back({{"name", name}, {"value", without_expansion(value)}});
  };
  set("PUSHPULL_CONFIG", std::string(kConfigFolder) + "/pushpull.yaml");
  set("PUSHPULL_SIZE", std::to_string(job.workers));
  set("MXNET_KVSTORE_BACKEND", job.backend);
  if (job.checkpoint.kind != Checkpoint::Kind::kNone)
    set("PUSHPULL_CHECKPOINT", job.checkpoint.given);
  if (!job.environment.contains("HOME")) set("HOME", "/tmp");  // the root is read-only
  for (const auto& [name, value] : job.environment) set(name, value);
  return list;
}

Json checkpoint_volume(const Checkpoint& checkpoint) {
  Json volume = {{"name", "checkpoint"}};
  switch (checkpoint.kind) {
    case Checkpoint::Kind::kClaim:
      volume["persistentVolumeClaim"] = {{"claimName", checkpoint.place}};
      break;
    case Checkpoint::Kind::kNfs:
      volume["nfs"] = {{"server", checkpoint.place}, {"path", checkpoint.folder}};
      break;
    case Checkpoint::Kind::kHostPath:
      volume["hostPath"] = {{"path", checkpoint.folder}, {"type", "Directory"}};
      break;
    case Checkpoint::Kind::kNone:
    case Checkpoint::Kind::kElsewhere:
      return nullptr;
  }
  return volume;
}

Json volumes(const KubernetesJob& job) {
  Json list = Json::array({config_volume(job.name), secret_volume(job), scratch_volume()});
  list.push_back(
      {{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", job.shared_memory}}}});
  if (Json volume = checkpoint_volume(job.checkpoint); !volume.is_null()) list.push_back(volume);
  return list;
}

Json mounts(const KubernetesJob& job) {
  Json list = Json::array({config_mount(),
                           secret_mount(),
                           scratch_mount(),
                           {{"name", "shm"}, {"mountPath", "/dev/shm"}}});
  if (checkpoint_volume(job.checkpoint).is_null()) return list;
  Json mount = {{"name", "checkpoint"}, {"mountPath", kCheckpointFolder}};
  const bool below = job.checkpoint.kind == Checkpoint::Kind::kClaim;
  if (below && !job.checkpoint.folder.empty()) mount["subPath"] = job.checkpoint.folder;
  list.push_back(mount);
  return list;
}

Json resources(const KubernetesJob& job) {
  Json requests = {{"cpu", job.cpu}, {"memory", job.memory}};
  Json limits = {{"memory", job.memory}};
  for (const auto& [name, amount] : job.limits) limits[name] = amount;
  return {{"requests", requests}, {"limits", limits}};
}

Json container(const KubernetesJob& job) {
  Json command = Json::array();
  for (const std::string& word : job.command) command.push_back(without_expansion(word));
  Json ports = Json::array();
  ports.push_back({{"name", "pushpull"}, {"containerPort", job.ports.first}});
  if (job.metrics_port != 0)
    ports.push_back({{"name", "metrics"}, {"containerPort", job.metrics_port}});
  return {{"name", "worker"},
          {"image", job.image},
          {"imagePullPolicy", job.pull_policy},
          {"command", command},
          {"env", environment(job)},
          {"ports", ports},
          {"resources", resources(job)},
          {"securityContext", container_security()},
          {"volumeMounts", mounts(job)}};
}

Json annotations(const KubernetesJob& job) {
  Json map = Json::object();
  if (job.metrics_port != 0) {
    map["prometheus.io/scrape"] = "true";
    map["prometheus.io/port"] = std::to_string(job.metrics_port);
    map["prometheus.io/path"] = "/metrics";
  }
  for (const auto& [name, value] : job.annotations) map[name] = value;
  return map;
}

Json pod(const KubernetesJob& job) {
  Json metadata = {{"labels", labels(job, kWorker)}};
  if (Json map = annotations(job); !map.empty()) metadata["annotations"] = map;
  Json spec = pod_basics(job);
  spec["restartPolicy"] = "Never";
  spec["subdomain"] = job.name;
  // So that the worker is not process 1, which the kernel would not let TERM end.
  spec["shareProcessNamespace"] = true;
  spec["terminationGracePeriodSeconds"] = job.grace_seconds;
  if (!job.service_account.empty()) spec["serviceAccountName"] = job.service_account;
  if (!job.node_selector.empty()) spec["nodeSelector"] = job.node_selector;
  spec["containers"] = Json::array({container(job)});
  spec["volumes"] = volumes(job);
  return {{"metadata", metadata}, {"spec", spec}};
}

// When one worker is lost, all end with 75 and are started again: each has failed once more, so
// that failures per index count failures of the group.
Json failure_policy() {
  Json disrupted = {
      {"action", "Ignore"},
      {"onPodConditions", Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}})}};
  Json bug = {{"action", "FailJob"},
              {"onExitCodes",
               {{"containerName", "worker"},
                {"operator", "NotIn"},
                {"values", Json::array({kExitRestart, kKilled, kTerminated})}}}};
  return {{"rules", Json::array({disrupted, bug})}};
}

Json indexed_job(const KubernetesJob& job) {
  Json object = object_of(job, "batch/v1", "Job", job.name, kWorker);
  Json spec = {{"completionMode", "Indexed"}, {"completions", job.workers},
               {"parallelism", job.workers},  {"backoffLimitPerIndex", job.restarts},
               {"maxFailedIndexes", 0},       {"podReplacementPolicy", "Failed"}};
  if (job.deadline_seconds > 0) spec["activeDeadlineSeconds"] = job.deadline_seconds;
  spec["podFailurePolicy"] = failure_policy();
  spec["template"] = pod(job);
  object["spec"] = spec;
  return object;
}

std::string heading(const KubernetesJob& job) {
  const std::string place = job.name_space.empty() ? "" : fmt::format("-n {} ", job.name_space);
  return fmt::format(
      "# Job {0}: {1} worker{2}, backend {3}. Start it by kubectl apply -f -; afterwards\n"
      "#   kubectl {4}logs -f --prefix --max-log-requests={5} -l {6}\n"
      "#   kubectl {4}wait --for=condition=Complete job/{0} --timeout=1h\n"
      "#   kubectl {4}delete all,configmap,secret,networkpolicy -l "
      "app.kubernetes.io/instance={0}\n",
      job.name, job.workers, job.workers == 1 ? "" : "s", job.backend, place,
      std::max(job.workers, 5), selector(job.name) + ",app.kubernetes.io/component=worker");
}

Result<void> check_utf8(const KubernetesJob& job) {
  const auto bad = [](std::string_view what) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is not UTF-8, which is all that Kubernetes can store", what));
  };
  for (const std::string& word : job.command) {
    if (!is_utf8(word)) return bad("the command's word " + in_quotes(word));
  }
  for (const auto* map : {&job.environment, &job.annotations, &job.node_selector}) {
    for (const auto& [name, value] : *map) {
      if (!is_utf8(name) || !is_utf8(value)) return bad("the value of " + in_quotes(name));
    }
  }
  for (const auto& [name, value] : job.secrets) {
    if (!is_utf8(value)) return bad("the text of the secret " + in_quotes(name));
  }
  if (!is_utf8(job.configuration) || !is_utf8(job.checkpoint.given + job.checkpoint.folder))
    return bad("the configuration");
  return {};
}

}  // namespace

Result<std::string> manifest(const KubernetesJob& job) {
  if (auto ok = check_utf8(job); !ok) return fail(ok.error());
  std::vector<Json> objects;
  if (!job.secrets.empty()) objects.push_back(secret(job));
  objects.push_back(config_map(job));
  objects.push_back(network_policy(job));
  if (job.redis) {
    for (Json& object : redis_objects(job)) objects.push_back(std::move(object));
  }
  objects.push_back(service(job));
  objects.push_back(indexed_job(job));
  std::string text = heading(job);
  for (const Json& object : objects) text += "---\n" + to_yaml(object);
  return text;
}

std::string selector(const std::string& name) { return "app.kubernetes.io/instance=" + name; }

}  // namespace pushpull::launcher
