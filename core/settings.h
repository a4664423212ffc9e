// The settings that core and backends work with, all resolved. Where they come from (flag,
// environment, YAML file, default) is core/config.h's business.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "core/deadline.h"

namespace pushpull {

struct Settings {
  std::string backend = "gloo";      // "gloo", "gloo-redis", "mpi", "self"
  std::string job = "default";       // PUSHPULL_JOB
  int rank = -1;                     // -1: the starter or the environment tells
  int size = -1;
  int local_rank = -1;
  std::string rendezvous;            // URL; empty: "tcp://127.0.0.1:29500"
  Duration rendezvous_timeout = std::chrono::seconds(60);
  std::string secret;                // PUSHPULL_SECRET or the content of PUSHPULL_SECRET_FILE
  std::string redis_user;            // from the URL or PUSHPULL_REDIS_USER
  std::string redis_password;        // PUSHPULL_REDIS_PASSWORD or the content of …_FILE
  std::string interface;             // PUSHPULL_INTERFACE
  std::string ports;                 // PUSHPULL_PORTS, "30000-30100"
  std::string host_label;            // sets ranks of one machine apart as if on several (tests)
  std::string module_path;           // PUSHPULL_BACKEND_PATH
  std::string log = "warning";       // PUSHPULL_LOG: error, warning, info, debug

  // Failure detection.
  Duration heartbeat_timeout = std::chrono::seconds(10);
  Duration stall_warning = std::chrono::seconds(30);   // 0: never
  Duration stall_timeout = std::chrono::seconds(600);  // 0: never
  Duration leave_timeout = std::chrono::seconds(5);
  bool dump_signal = true;           // SIGUSR2 prints what this rank waits for

  // tuning:
  size_t fusion_bytes = 4u << 20;    // how much one batch carries
  size_t chunk_bytes = 256u << 10;   // pipelining unit of the exchange across hosts
  size_t shm_chunk_bytes = 128u << 10;
  std::string local = "auto";        // ranks of one host: "shm", "backend", "auto"
  std::string exchange = "auto";     // across hosts: "ring", "direct", "auto", "mpi"
};

}  // namespace pushpull
