#include "launcher/manifest/cluster_state.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/config.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

using Json = nlohmann::json;

const Json& at(const Json& value, std::string_view name) {
  static const Json nothing;
  const auto found = value.is_object() ? value.find(name) : value.end();
  return value.is_object() && found != value.end() ? *found : nothing;
}

std::string text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

JobState job_of(const Json& item) {
  JobState job;
  job.found = true;
  for (const Json& condition : at(at(item, "status"), "conditions")) {
    if (text(at(condition, "status")) != "True") continue;
    const std::string type = text(at(condition, "type"));
    job.complete = job.complete || type == "Complete";
    if (type != "Failed") continue;
    job.failed = true;
    job.reason = text(at(condition, "reason"));
    job.message = text(at(condition, "message"));
  }
  return job;
}

void read_container(const Json& status, PodState& pod) {
  const Json& state = at(status, "state");
  const Json& ended = at(state, "terminated");
  pod.started = !ended.is_null() || !at(state, "running").is_null();
  if (ended.is_object()) {
    pod.ended = true;
    pod.exit_code =
        at(ended, "exitCode").is_number_integer() ? at(ended, "exitCode").get<int>() : 1;
    pod.finished_at = text(at(ended, "finishedAt"));
  }
  const Json& waiting = at(state, "waiting");
  const std::string reason = text(at(waiting, "reason"));
  const std::string message = text(at(waiting, "message"));
  if (reason.empty() || reason == "ContainerCreating" || reason == "PodInitializing") return;
  pod.trouble = message.empty() ? reason : fmt::format("{}: {}", reason, message);
}

PodState pod_of(const Json& item) {
  PodState pod;
  const Json& metadata = at(item, "metadata");
  pod.name = text(at(metadata, "name"));
  const auto rank = parse_integer(
      text(at(at(metadata, "annotations"), "batch.kubernetes.io/job-completion-index")));
  if (rank) pod.rank = static_cast<int>(*rank);
  pod.node = text(at(at(item, "spec"), "nodeName"));
  const Json& status = at(item, "status");
  for (const Json& container : at(status, "containerStatuses")) read_container(container, pod);
  for (const Json& condition : at(status, "conditions")) {
    if (text(at(condition, "reason")) == "Unschedulable")
      pod.trouble = "no node for it: " + text(at(condition, "message"));
  }
  // A pod that a node lost, or that was evicted before it ran, has no container to ask.
  if (!pod.ended && text(at(status, "phase")) == "Failed") {
    pod.ended = true;
    pod.exit_code = kExitRestart;
  }
  return pod;
}

}  // namespace

Result<ClusterState> parse_cluster_state(std::string_view json) {
  const Json list = Json::parse(json, nullptr, false);
  if (!list.is_object()) {
    return fail(ErrorCode::kUnavailable, "kubectl get did not print JSON");
  }
  ClusterState state;
  for (const Json& item : at(list, "items")) {
    const std::string kind = text(at(item, "kind"));
    if (kind == "Job") state.job = job_of(item);
    if (kind != "Pod") continue;
    if (PodState pod = pod_of(item); pod.rank >= 0) state.workers.push_back(std::move(pod));
  }
  return state;
}

void ClusterVerdict::observe(const ClusterState& state) {
  if (state.job.found) job_ = state.job;
  for (const PodState& pod : state.workers) {
    if (pod.ended && pod.exit_code != 0) failed_[pod.name] = pod;
  }
}

// The one that failed last and not only because others did.
const PodState* ClusterVerdict::culprit() const {
  const PodState* found = nullptr;
  const auto weight = [](const PodState& pod) {
    const bool killed = pod.exit_code == 137 || pod.exit_code == 143;
    return pod.exit_code == kExitRestart ? 0 : killed ? 1 : 2;
  };
  for (const auto& [name, pod] : failed_) {
    if (found == nullptr || weight(pod) > weight(*found) ||
        (weight(pod) == weight(*found) && pod.finished_at > found->finished_at)) {
      found = &pod;
    }
  }
  return found;
}

int ClusterVerdict::exit_code() const {
  if (job_.complete) return 0;
  if (job_.reason == "DeadlineExceeded") return kExitTimeout;
  const PodState* pod = culprit();
  return pod == nullptr ? 1 : pod->exit_code;
}

std::string ClusterVerdict::report() const {
  if (job_.complete || !job_.failed) return {};
  std::string line = fmt::format("the job failed ({}): {}", job_.reason, job_.message);
  if (const PodState* pod = culprit(); pod != nullptr) {
    line += fmt::format("; rank {} (pod {}, node {}) ended with exit code {}", pod->rank, pod->name,
                        pod->node, pod->exit_code);
  }
  return line;
}

}  // namespace pushpull::launcher
