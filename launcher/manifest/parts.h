// The parts of a manifest: what workers and Redis have in common, and Redis.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/manifest/kubernetes_job.h"

namespace pushpull::launcher {

// Components of a job; a label.
inline constexpr std::string_view kWorker = "worker";
inline constexpr std::string_view kRedis = "redis";

nlohmann::ordered_json labels(const KubernetesJob& job, std::string_view component);
// Those by which pods are found.
nlohmann::ordered_json selecting_labels(const KubernetesJob& job, std::string_view component);
// apiVersion, kind and metadata; the component may be empty.
nlohmann::ordered_json object_of(const KubernetesJob& job, std::string_view version,
                                 std::string_view kind, const std::string& name,
                                 std::string_view component);
// What every pod's specification begins with.
nlohmann::ordered_json pod_basics(const KubernetesJob& job);
nlohmann::ordered_json container_security();

// Volumes and where they are mounted: the ConfigMap, the Secret, /tmp.
nlohmann::ordered_json config_volume(const std::string& config_map);
nlohmann::ordered_json config_mount();
nlohmann::ordered_json secret_volume(const KubernetesJob& job);
nlohmann::ordered_json secret_mount();
nlohmann::ordered_json scratch_volume();
nlohmann::ordered_json scratch_mount();

std::vector<nlohmann::ordered_json> redis_objects(const KubernetesJob& job);

}  // namespace pushpull::launcher
