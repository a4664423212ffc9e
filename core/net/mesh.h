// The Mesh over TCP: one acceptor per rank, sorted by who called for which lane.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/group.h"
#include "core/net/acceptor.h"

namespace pushpull {

// Takes data connections that an Acceptor accepted and dials the others. Thread-safe.
class TcpMesh : public Mesh {
 public:
  // Before members are known: only collects what arrives.
  explicit TcpMesh(std::string secret);
  ~TcpMesh() override;

  // An Acceptor's `accepted` for Purpose::kData. A second connection of the same rank and lane
  // replaces the first (its dialer gave up and tried again).
  void accepted(const Hello& hello, Socket socket);

  // Who we are and whom to dial; `members[r].address` are their listeners.
  void set_group(const std::string& job, const std::string& run, int generation, int rank,
                 std::vector<Member> members);

  [[nodiscard]] Result<std::vector<Socket>> connect(int lane, Deadline deadline) override;
  // Makes connect() return `reason` soon. Any thread.
  void cancel(const Error& reason);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pushpull
