#include "launcher/manifest/parts.h"

namespace pushpull::launcher {

using Json = nlohmann::ordered_json;

Json selecting_labels(const KubernetesJob& job, std::string_view component) {
  return {{"app.kubernetes.io/instance", job.name}, {"app.kubernetes.io/component", component}};
}

Json labels(const KubernetesJob& job, std::string_view component) {
  Json map = {{"app.kubernetes.io/name", "pushpull"}, {"app.kubernetes.io/instance", job.name}};
  if (!component.empty()) map["app.kubernetes.io/component"] = component;
  map["app.kubernetes.io/managed-by"] = "pushpull";
  return map;
}

Json object_of(const KubernetesJob& job, std::string_view version, std::string_view kind,
               const std::string& name, std::string_view component) {
  Json metadata = {{"name", name}};
  if (!job.name_space.empty()) metadata["namespace"] = job.name_space;
  metadata["labels"] = labels(job, component);
  return {{"apiVersion", version}, {"kind", kind}, {"metadata", metadata}};
}

Json pod_basics(const KubernetesJob& job) {
  Json spec = {{"automountServiceAccountToken", false},
               // Else every Service of the namespace would set variables such as REDIS_PORT.
               {"enableServiceLinks", false},
               {"securityContext",
                {{"runAsNonRoot", true},
                 {"runAsUser", job.user},
                 {"runAsGroup", job.user},
                 {"fsGroup", job.user},
                 {"seccompProfile", {{"type", "RuntimeDefault"}}}}}};
  if (!job.pull_secret.empty())
    spec["imagePullSecrets"] = Json::array({{{"name", job.pull_secret}}});
  return spec;
}

Json container_security() {
  return {{"allowPrivilegeEscalation", false},
          {"readOnlyRootFilesystem", true},
          {"capabilities", {{"drop", Json::array({"ALL"})}}}};
}

Json config_volume(const std::string& config_map) {
  return {{"name", "config"}, {"configMap", {{"name", config_map}}}};
}

Json config_mount() {
  return {{"name", "config"}, {"mountPath", kConfigFolder}, {"readOnly", true}};
}

Json secret_volume(const KubernetesJob& job) {
  constexpr int kOwnerAndGroup = 0440;
  return {{"name", "secret"},
          {"secret", {{"secretName", job.secret_name}, {"defaultMode", kOwnerAndGroup}}}};
}

Json secret_mount() {
  return {{"name", "secret"}, {"mountPath", kSecretFolder}, {"readOnly", true}};
}

Json scratch_volume() { return {{"name", "tmp"}, {"emptyDir", Json::object()}}; }

Json scratch_mount() { return {{"name", "tmp"}, {"mountPath", "/tmp"}}; }

}  // namespace pushpull::launcher
