// Carries a job out on a cluster: applies its objects, follows its logs, and removes it.
#pragma once

#include <string>
#include <vector>

#include "launcher/manifest/kubernetes_job.h"

namespace pushpull::launcher {

struct KubernetesRun {
  KubernetesJob job;
  std::string objects;                   // as manifest() wrote them
  std::string context;                   // of kubectl; empty: its current one
  std::vector<std::string> environment;  // for kubectl
  std::string log_folder;                // empty: tagged output
};

// Runs the job to its end and returns the exit code for the command: that of ClusterVerdict; 128 +
// signal where a signal ended it; 127 without kubectl; 1 where kubectl or the cluster failed. What
// was applied is deleted before it returns. `alive` as for run_job(). Main thread only.
int run_on_kubernetes(const KubernetesRun& run, int alive);

}  // namespace pushpull::launcher
