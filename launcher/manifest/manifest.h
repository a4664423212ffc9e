// A job as Kubernetes objects, in YAML that people read and `kubectl apply` takes.
#pragma once

#include <string>

#include "core/error.h"
#include "launcher/manifest/kubernetes_job.h"

namespace pushpull::launcher {

// Secrets are in objects of kind Secret and nowhere else. InvalidArgument where a text is not
// UTF-8, which Kubernetes cannot store.
[[nodiscard]] Result<std::string> manifest(const KubernetesJob& job);

// app.kubernetes.io/instance=name, for kubectl's --selector.
std::string selector(const std::string& name);

}  // namespace pushpull::launcher
