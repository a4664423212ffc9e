// The Mesh over TCP: one acceptor per rank, sorted by who called.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/group.h"
#include "core/net/acceptor.h"

namespace pushpull {

// Takes data connections that an Acceptor accepted and dials the others. Thread-safe.
//
// After the hello the dialer sends one byte, so that the accepting side counts a connection only
// once its dialer counts it too: one that gave up and tried again is never mistaken for the one
// that replaced it.
class TcpMesh : public Mesh {
 public:
  // Before members are known: only collects what arrives.
  explicit TcpMesh(std::string secret);
  ~TcpMesh() override;

  // An Acceptor's `judge` for Purpose::kData. Until the group is known it checks only what can be
  // known; afterwards job, run, generation, rank, and that it is not connected yet.
  [[nodiscard]] Result<void> judge(const Hello& hello) const;
  // An Acceptor's `accepted` for Purpose::kData; what does not belong to the group is dropped. A
  // second connection of the same rank replaces the first (its dialer gave up and tried again).
  void accepted(const Hello& hello, Socket socket);

  // Who we are and whom to dial; `members[r].address` are their listeners. Again for a new
  // generation.
  void set_group(const std::string& job, const std::string& run, int generation, int rank,
                 std::vector<Member> members);

  // A Timeout names the ranks that are missing, with host and what was seen last.
  [[nodiscard]] Result<std::vector<Socket>> connect(Deadline deadline) override;
  // The mesh of these ranks alone, this one among them; sockets come in their order. A
  // generation is connected once, in whichever mesh. Valid as long as this object.
  std::unique_ptr<Mesh> among(std::vector<int> ranks);
  // Makes this and every later connect() return `reason` soon. Any thread.
  void cancel(const Error& reason);

 private:
  struct State;
  class Connecting;
  class Some;
  std::unique_ptr<State> state_;
};

}  // namespace pushpull
