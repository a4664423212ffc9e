// Who belongs to a group, and how its members reach one another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/deadline.h"
#include "core/error.h"
#include "core/layout.h"
#include "core/net/socket.h"

namespace pushpull {

// One process of the group, as it described itself when it joined.
struct Member {
  int rank = -1;                  // in the whole group, also where a part of it is connected
  std::string host;               // host name, for people
  int64_t pid = 0;
  std::string boot_id;            // same boot id and network namespace: may share memory (not proof)
  uint64_t network_namespace = 0;  // inode
  std::string address;            // "host:port" of its listener, numeric; empty where there is none
};

// Connects authenticated byte streams between members. Every member of the group calls connect()
// at about the same time, once; the higher rank dials the lower. Retries until the deadline.
// Wrong or hostile connections are counted, logged and dropped without disturbing it.
class Mesh {
 public:
  virtual ~Mesh() = default;
  // sockets[r] is connected to member r (non-blocking, CLOEXEC, TCP_NODELAY); invalid for this rank.
  [[nodiscard]] virtual Result<std::vector<Socket>> connect(Deadline deadline) = 0;
};

// Of each member the lowest rank that it may share memory with, as far as one can tell without
// trying; its own rank where it is the lowest or the only one.
std::vector<int> candidate_hosts(const std::vector<Member>& members);

struct Stages;  // core/backend.h

inline constexpr size_t kPairBytes = 136u << 10;

struct Group {
  std::string job;          // PUSHPULL_JOB
  std::string run;          // random id of this start of the job
  int generation = 0;       // of the group within the run
  int rank = 0;             // index of this process in `members`
  std::vector<Member> members;
  Layout layout;            // which of them share memory; what is not known yet counts as apart
  std::string secret;       // of the job; for backends that open connections of their own
  Mesh* mesh = nullptr;     // valid during Backend::connect only; null for MPI and self
  Stages* stages = nullptr;  // for a backend that joins two others, during connect only
  // Valid during Backend::connect only, may be empty; any thread. Why the group will not come about:
  // whoever waits for other members looks there from time to time.
  std::function<std::optional<Error>()> given_up;
  // Valid during Backend::connect only, may be empty. A backend whose ranks share memory gives some
  // to the control plane, on both sides: kPairBytes, zero when new and on a cache line, which members
  // `first` and `other` (Member::rank) map and nobody else uses. `owner` keeps it mapped.
  std::function<void(int first, int other, std::byte* memory, std::shared_ptr<void> owner)> shares;

  int size() const { return static_cast<int>(members.size()); }
  // "rank 3 (host node-b, pid 4711)"
  std::string describe(int rank) const;
};

}  // namespace pushpull
