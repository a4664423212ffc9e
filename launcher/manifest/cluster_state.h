// What the cluster says about a job, read from kubectl's JSON; and what the job's exit code is.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace pushpull::launcher {

struct PodState {
  std::string name;
  int rank = -1;
  std::string node;
  bool started = false;  // its container runs or has run: there is a log
  bool ended = false;
  int exit_code = 0;
  std::string finished_at;  // sorts by time
  std::string trouble;      // why it does not start, "ImagePullBackOff: …"; may be empty
};

struct JobState {
  bool found = false;
  bool complete = false;
  bool failed = false;
  std::string reason;   // of the failure, "PodFailurePolicy"
  std::string message;  // a sentence
};

struct ClusterState {
  JobState job;
  std::vector<PodState> workers;
};

// `json`: of kubectl get jobs,pods -o json.
[[nodiscard]] Result<ClusterState> parse_cluster_state(std::string_view json);

// Remembers pods that the cluster forgets, and says how the job went.
class ClusterVerdict {
 public:
  void observe(const ClusterState& state);

  bool ended() const { return job_.complete || job_.failed; }
  // 0; the code of the worker that failed by itself; 75 where the restarts did not help; 124 after
  // the deadline; 1 where nothing is known.
  int exit_code() const;
  // For people; empty where all went well.
  std::string report() const;

 private:
  const PodState* culprit() const;

  JobState job_;
  std::map<std::string, PodState> failed_;  // pods by name
};

}  // namespace pushpull::launcher
