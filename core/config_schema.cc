#include "core/config.h"

namespace pushpull {

const std::vector<ConfigKey>& config_schema() {
  using enum ConfigType;
  static const std::vector<ConfigKey> schema = {
      {"backend", "MXNET_KVSTORE_BACKEND", "--backend", kString, "gloo", "gloo|gloo-redis|mpi|self",
       "What carries the gradients."},
      {"workers", "PUSHPULL_SIZE", "-n,--workers", kInt, "auto", "1..65536",
       "How many workers the job has."},
      {"rank", "PUSHPULL_RANK", "", kInt, "auto", "0..65535",
       "Which of the workers this process is.", true},
      {"local_rank", "PUSHPULL_LOCAL_RANK", "", kInt, "auto", "0..65535",
       "Which of the workers of its host this process is.", true},
      {"job", "PUSHPULL_JOB", "--job", kString, "default", "",
       "Name of the job; jobs that share a rendezvous need different ones."},
      {"rendezvous.url", "PUSHPULL_RENDEZVOUS", "--rendezvous", kString, "", "",
       "Where ranks find each other: tcp://host:port, file:///folder or redis://host:port/db."},
      {"rendezvous.timeout", "PUSHPULL_RENDEZVOUS_TIMEOUT", "--rendezvous-timeout", kDuration,
       "60s", "", "How long ranks wait until all have joined."},
      {"secret", "PUSHPULL_SECRET", "", kSecret, "", "",
       "What proves that a connection belongs to the job."},
      {"secret_file", "PUSHPULL_SECRET_FILE", "", kString, "", "", "File that holds the secret."},
      {"interface", "PUSHPULL_INTERFACE", "--interface", kString, "", "",
       "Network interfaces to use: names, prefixes, CIDR, ipv4 or ipv6, ^ excludes; empty follows "
       "the route to the rendezvous."},
      {"ports", "PUSHPULL_PORTS", "--ports", kString, "", "",
       "Ports to listen on, such as 30000-30100; empty takes free ones."},
      {"local", "PUSHPULL_LOCAL", "", kChoice, "auto", "auto|shm|backend",
       "How ranks of one host exchange: shared memory, or like any other ranks."},
      {"exchange", "PUSHPULL_EXCHANGE", "", kChoice, "auto", "auto|ring|direct|mpi",
       "How hosts exchange; mpi calls MPI_Allreduce, whose bits may differ from run to run."},
      {"backend_path", "PUSHPULL_BACKEND_PATH", "", kString, "", "",
       "Further folders with backend modules, separated by colons."},
      {"log", "PUSHPULL_LOG", "--log", kChoice, "warning", "error|warning|info|debug",
       "What is logged on stderr."},
      {"redis.start", "", "", kBool, "false", "",
       "Start a private Redis server for the job, and end it with the job."},
      {"redis.user", "PUSHPULL_REDIS_USER", "", kString, "", "", "User name at the Redis server."},
      {"redis.password", "PUSHPULL_REDIS_PASSWORD", "", kSecret, "", "",
       "Password at the Redis server."},
      {"redis.password_file", "PUSHPULL_REDIS_PASSWORD_FILE", "", kString, "", "",
       "File that holds the password of the Redis server."},
      {"failure.heartbeat_timeout", "PUSHPULL_HEARTBEAT_TIMEOUT", "", kDuration, "10s", "",
       "A rank that is silent for this long is dead."},
      {"failure.stall_warning", "PUSHPULL_STALL_WARNING", "", kDuration, "30s", "",
       "A key that some ranks have not announced for this long is logged; 0: never."},
      {"failure.stall_timeout", "PUSHPULL_STALL_TIMEOUT", "", kDuration, "600s", "",
       "A key that some ranks have not announced for this long fails; 0: never."},
      {"failure.leave_timeout", "PUSHPULL_LEAVE_TIMEOUT", "", kDuration, "5s", "",
       "How long a rank that leaves waits for the others."},
      {"failure.dump_signal", "PUSHPULL_DUMP_SIGNAL", "", kBool, "true", "",
       "SIGUSR2, or pushpull dump, makes a rank print what it waits for, unless the script handles the "
       "signal itself."},
      {"tuning.fusion_bytes", "PUSHPULL_FUSION_BYTES", "", kBytes, "4MiB", "0..16GiB",
       "How much one batch of keys carries."},
      {"tuning.chunk_bytes", "PUSHPULL_CHUNK_BYTES", "", kBytes, "256KiB", "1KiB..1GiB",
       "Pieces in which hosts exchange."},
      {"tuning.shm_chunk_bytes", "PUSHPULL_SHM_CHUNK_BYTES", "", kBytes, "128KiB", "1KiB..1GiB",
       "Pieces in which ranks of one host exchange."},
      {"launch.engine", "PUSHPULL_ENGINE", "--engine", kChoice, "auto",
       "auto|local|mpirun|slurm|kubernetes",
       "What starts the workers; auto takes slurm inside an allocation, mpirun for the mpi backend "
       "or several hosts, local otherwise."},
      {"launch.hosts", "PUSHPULL_HOSTS", "--hosts", kString, "", "",
       "Hosts and how many workers each takes, as in a:2,b:2."},
      {"launch.hostfile", "PUSHPULL_HOSTFILE", "--hostfile", kString, "", "",
       "File with a host in each line, as in 'a slots=2' or 'a:2'."},
      {"launch.forward", "PUSHPULL_FORWARD", "--forward", kString, "auto", "",
       "Variables that workers on other hosts get from here: names, prefixes as in OMP_*, ^ "
       "excludes."},
      {"launch.starter_args", "PUSHPULL_STARTER_ARGS", "--starter-args", kString, "", "",
       "Further arguments for mpirun, srun or sbatch, quoted as in a shell."},
      {"launch.restarts", "PUSHPULL_RESTARTS", "--restarts", kInt, "0", "0..1000000",
       "How often the job is started again when a worker asks for it by exit code 75 or is "
       "lost; in pods 6 times unless this is set."},
      {"launch.timeout", "PUSHPULL_JOB_TIMEOUT", "--timeout", kDuration, "0", "",
       "The job is ended after this long; 0: never."},
      {"launch.grace", "PUSHPULL_GRACE", "--grace", kDuration, "5s", "",
       "How long after the first failure, or after a signal, workers may take to end."},
      {"launch.log_dir", "PUSHPULL_LOG_DIR", "--log-dir", kString, "", "",
       "Folder for one file of output per rank; empty: output comes tagged with the rank."},
      {"launch.bind", "PUSHPULL_BIND", "--bind", kChoice, "none", "none|share",
       "CPU cores of the workers of a host: all for each, or a share for each."},
      {"launch.env", "", "", kStringMap, "", "", "Environment variables for the workers."},
      {"kubernetes.image", "", "--image", kString, "", "", "Container image of the workers."},
      {"kubernetes.namespace", "", "--namespace", kString, "", "",
       "Namespace of the objects; empty: kubectl's current one."},
      {"kubernetes.context", "", "", kString, "", "",
       "Which cluster of kubectl's configuration --engine kubernetes talks to; empty: its current "
       "one."},
      {"kubernetes.pull_policy", "", "", kChoice, "IfNotPresent", "Always|IfNotPresent|Never",
       "When nodes fetch the image."},
      {"kubernetes.pull_secret", "", "", kString, "", "",
       "Name of the Secret with which nodes fetch the image."},
      {"kubernetes.secret", "", "", kString, "", "",
       "Name of a Secret that is there already, with the keys 'secret' and, where Redis is used, "
       "'redis-password'; empty: one is made up."},
      {"kubernetes.cpu", "", "", kString, "1", "", "CPU that a worker asks for, such as 2 or 500m."},
      {"kubernetes.memory", "", "", kString, "2Gi", "",
       "Memory that a worker asks for, and its limit."},
      {"kubernetes.shared_memory", "", "", kString, "256Mi", "",
       "Size of a worker's /dev/shm, which is part of its memory; MXNet's DataLoader uses it."},
      {"kubernetes.limits", "", "", kStringMap, "", "",
       "Further resources for a worker, such as nvidia.com/gpu: 1."},
      {"kubernetes.node_selector", "", "", kStringMap, "", "", "Labels of the nodes to use."},
      {"kubernetes.annotations", "", "", kStringMap, "", "", "Annotations for the workers' pods."},
      {"kubernetes.service_account", "", "", kString, "", "", "Service account of the pods."},
      {"kubernetes.user", "", "", kInt, "1000", "1..2147483647", "Number of the user in the pods."},
      {"kubernetes.checkpoint", "", "", kString, "", "",
       "Where the script keeps its checkpoints: pvc://claim/folder, nfs://server/path or "
       "hostpath:///path is mounted at /checkpoint; another URL is only passed on, in "
       "PUSHPULL_CHECKPOINT."},
      {"kubernetes.redis_image", "", "", kString, "redis:7.2", "",
       "Container image of the Redis server of redis.start."},
      {"kubernetes.metrics_port", "", "", kInt, "0", "0..65535",
       "Port where the script serves metrics to Prometheus; 0: none."},
  };
  return schema;
}

const ConfigKey* find_config_key(std::string_view path) {
  for (const ConfigKey& key : config_schema()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

}  // namespace pushpull
