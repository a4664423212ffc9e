// What a job is on Kubernetes, all of it decided: manifest.h writes it down as objects.
//
// A pure function of configuration and command, like a Plan.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/error.h"

namespace pushpull::launcher {

// Made for this output.
struct MadeUp {
  std::string secret;
  std::string redis_password;
  std::string suffix;  // of the name, so that a job can run twice at once; may be empty
};

struct Ports {
  int first = 0;
  int last = 0;
};

// Where the script's checkpoints are.
struct Checkpoint {
  enum class Kind { kNone, kClaim, kNfs, kHostPath, kElsewhere };
  Kind kind = Kind::kNone;
  std::string place;   // name of the claim, or of the NFS server
  std::string folder;  // on the volume; of a claim below its root, without leading slash
  std::string given;   // to the script: a folder in the pod, or the URL
};

// The Redis that is deployed with the job.
struct KubernetesRedis {
  std::string image;
  std::string user;
};

struct KubernetesJob {
  std::string name;  // of the objects; DNS label
  std::string job;   // as the configuration says
  std::string backend;
  int workers = 1;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;  // launch.env
  std::string rendezvous;
  Ports ports;                // where a worker listens
  int store_port = 0;         // where rank 0 serves the rendezvous; 0: it does not
  std::string configuration;  // YAML for the workers, without secrets

  // Contents of the Secret by key; empty where it is there already.
  std::map<std::string, std::string> secrets;
  std::string secret_name;
  bool needs_redis_password = false;
  std::optional<KubernetesRedis> redis;

  std::string image;
  std::string name_space;  // of the objects; empty: kubectl's current one
  std::string pull_policy;
  std::string pull_secret;
  std::string service_account;
  std::string cpu;
  std::string memory;
  std::string shared_memory;
  std::map<std::string, std::string> limits;
  std::map<std::string, std::string> node_selector;
  std::map<std::string, std::string> annotations;
  int64_t user = 0;
  int64_t restarts = 0;
  int metrics_port = 0;
  int64_t deadline_seconds = 0;  // 0: none
  int64_t grace_seconds = 0;
  Checkpoint checkpoint;

  std::vector<std::string> notes;  // for people
};

// Where things are in the pods.
inline constexpr const char* kConfigFolder = "/etc/pushpull";
inline constexpr const char* kSecretFolder = "/run/secrets/pushpull";
inline constexpr const char* kCheckpointFolder = "/checkpoint";
inline constexpr int kRedisPort = 6379;

// Errors are InvalidArgument and name the setting and where it came from.
[[nodiscard]] Result<KubernetesJob> make_kubernetes_job(const Config& config,
                                                        const std::vector<std::string>& command,
                                                        const MadeUp& made_up);

}  // namespace pushpull::launcher
