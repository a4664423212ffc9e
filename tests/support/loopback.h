// Groups of ranks that are threads of one process, connected by real TCP sockets over loopback.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/group.h"

namespace pushpull::testing {

// A pair of connected sockets: TCP over loopback, non-blocking, CLOEXEC, TCP_NODELAY.
[[nodiscard]] Result<std::pair<Socket, Socket>> loopback_pair();

class LoopbackNetwork {
 public:
  explicit LoopbackNetwork(int ranks);
  ~LoopbackNetwork();

  int size() const { return ranks_; }
  // With a mesh that lives as long as this object. Any thread.
  Group group(int rank);
  // Makes the sockets now, so that processes forked afterwards find theirs.
  [[nodiscard]] Result<void> prepare();

 private:
  class RankMesh;
  // Row `rank` of the matrix of sockets, which are made when first asked for.
  Result<std::vector<Socket>> row(int rank);
  Result<void> fill();

  const int ranks_;
  const std::string run_;
  std::vector<std::unique_ptr<RankMesh>> meshes_;
  std::mutex mutex_;
  std::vector<std::vector<Socket>> sockets_;
};

}  // namespace pushpull::testing
