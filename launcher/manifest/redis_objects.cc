// The Redis that is deployed with a job: nothing is kept, and only the job's pods get in.
#include <fmt/format.h>

#include "launcher/manifest/parts.h"

namespace pushpull::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfiguration =
    R"(# Holds a few kilobytes while ranks connect; nothing is written to disk.
bind * -::*
port {0}
protected-mode no
save ""
appendonly no
dir /tmp
maxmemory 64mb
maxmemory-policy noeviction
aclfile /tmp/users.acl
)";

// What docs/redis.md lists as needed, and nothing else.
constexpr const char* kStart =
    R"sh(# Redis gets only the hash of the password, which may thus hold any character.
set -eu
umask 077
password={0}/redis-password
hash=$(printf %s "$(cat $password)" | sha256sum | cut -c1-64)
cat > /tmp/users.acl <<END
user default off
user {1} on #$hash ~pushpull:* resetchannels -@all +get +set +del +eval +incrby +pexpire +select
END
exec redis-server {2}/redis.conf
)sh";

std::string name_of(const KubernetesJob& job) { return job.name + "-redis"; }

Json config_map(const KubernetesJob& job) {
  Json object = object_of(job, "v1", "ConfigMap", name_of(job), kRedis);
  object["data"] = {
      {"redis.conf", fmt::format(kConfiguration, kRedisPort)},
      {"start.sh", fmt::format(kStart, kSecretFolder, job.redis->user, kConfigFolder)}};
  return object;
}

Json service(const KubernetesJob& job) {
  Json object = object_of(job, "v1", "Service", name_of(job), kRedis);
  object["spec"] = {{"selector", selecting_labels(job, kRedis)},
                    {"ports", Json::array({{{"name", "redis"}, {"port", kRedisPort}}})}};
  return object;
}

Json network_policy(const KubernetesJob& job) {
  Json object = object_of(job, "networking.k8s.io/v1", "NetworkPolicy", name_of(job), kRedis);
  Json from = Json::array({{{"podSelector", {{"matchLabels", selecting_labels(job, kWorker)}}}}});
  Json ports = Json::array({{{"protocol", "TCP"}, {"port", kRedisPort}}});
  object["spec"] = {{"podSelector", {{"matchLabels", selecting_labels(job, kRedis)}}},
                    {"policyTypes", Json::array({"Ingress"})},
                    {"ingress", Json::array({{{"from", from}, {"ports", ports}}})}};
  return object;
}

Json container(const KubernetesJob& job) {
  const Json tcp = {{"port", "redis"}};
  return {
      {"name", "redis"},
      {"image", job.redis->image},
      {"imagePullPolicy", job.pull_policy},
      {"command", Json::array({"sh", std::string(kConfigFolder) + "/start.sh"})},
      {"ports", Json::array({{{"name", "redis"}, {"containerPort", kRedisPort}}})},
      // No command: on a busy node those take longer than Redis.
      {"readinessProbe", {{"tcpSocket", tcp}, {"periodSeconds", 1}, {"timeoutSeconds", 5}}},
      {"livenessProbe", {{"tcpSocket", tcp}, {"initialDelaySeconds", 5}, {"timeoutSeconds", 10}}},
      {"resources",
       {{"requests", {{"cpu", "50m"}, {"memory", "64Mi"}}}, {"limits", {{"memory", "128Mi"}}}}},
      {"securityContext", container_security()},
      {"volumeMounts", Json::array({config_mount(), secret_mount(), scratch_mount()})}};
}

Json deployment(const KubernetesJob& job) {
  Json object = object_of(job, "apps/v1", "Deployment", name_of(job), kRedis);
  Json pod = pod_basics(job);
  pod["terminationGracePeriodSeconds"] = 5;
  pod["containers"] = Json::array({container(job)});
  pod["volumes"] = Json::array({config_volume(name_of(job)), secret_volume(job), scratch_volume()});
  object["spec"] = {{"replicas", 1},
                    {"strategy", {{"type", "Recreate"}}},
                    {"selector", {{"matchLabels", selecting_labels(job, kRedis)}}},
                    {"template", {{"metadata", {{"labels", labels(job, kRedis)}}}, {"spec", pod}}}};
  return object;
}

}  // namespace

std::vector<Json> redis_objects(const KubernetesJob& job) {
  return {config_map(job), service(job), network_policy(job), deployment(job)};
}

}  // namespace pushpull::launcher
