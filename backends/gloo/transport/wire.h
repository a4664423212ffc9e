// All connections of one rank of a group, and the waiting on them.
//
// No thread of its own: whoever waits drives the loop. Of several threads that wait at once one
// sleeps in the kernel and the others on a condition variable; all reading and writing happens
// under one lock. A call that starts an operation writes what the socket takes before it returns.
//
// After the first failure (a lost peer, nonsense on the wire, abort()) every operation is dropped,
// no memory that was given here is touched any more, and every call returns that failure.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/gloo/transport/connection.h"
#include "core/deadline.h"
#include "core/error.h"
#include "core/fork_guard.h"
#include "core/net/socket.h"

namespace pushpull::transport {

// How a member is called in messages.
struct Peer {
  std::string name;  // "rank 3 (host node-b, pid 4711)"
  std::string host;
};

class Wire final : private ForkObserver {
 public:
  // sockets[r] is connected to rank r, non-blocking.
  [[nodiscard]] static Result<std::unique_ptr<Wire>> create(int rank, std::vector<Socket> sockets,
                                                            std::vector<Peer> peers);
  // Nobody may be waiting. Closes in order: what was sent still arrives. The child of a fork has no
  // descriptor of ours from its first moment on, so that a death of its parent is seen at once.
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const std::string& name(int rank) const { return peers_[static_cast<size_t>(rank)].name; }

  [[nodiscard]] Result<void> send(int to, SendOp op);
  [[nodiscard]] Result<void> recv(int from, RecvOp op);
  // From whichever of `from` delivers first.
  [[nodiscard]] Result<void> recv_any(const std::vector<int>& from, RecvOp op);
  [[nodiscard]] Result<void> add_target(int from, uint64_t slot, const Target& target);
  void remove_target(int from, uint64_t slot);
  // Called before `completion`, or the memory behind it, goes away.
  void forget(const Completion* completion);

  // Blocks until `done`, which is asked with the lock held; false: the deadline passed before.
  [[nodiscard]] Result<bool> wait(const std::function<bool()>& done, Deadline deadline);
  // What is possible without blocking.
  [[nodiscard]] Result<bool> test(const std::function<bool()>& done);
  // Blocks until `count` operations without a completion have ended in that direction.
  [[nodiscard]] Result<bool> wait_sent(int to, uint64_t count, Deadline deadline);
  [[nodiscard]] Result<bool> wait_received(int from, uint64_t count, Deadline deadline);
  [[nodiscard]] Result<bool> test_sent(int to, uint64_t count);
  [[nodiscard]] Result<bool> test_received(int from, uint64_t count);

  // Changes something that a waiter's `done` looks at, and wakes it.
  void change(const std::function<void()>& what);
  // Tells one peer that nothing more comes.
  void finish(int peer);
  // Any thread; does not wait for anything; the first reason stays.
  void abort(const Error& reason);

 private:
  Wire(int rank, std::vector<Peer> peers);
  Result<void> open(std::vector<Socket> sockets);
  void after_fork_in_child() override;

  Connection* connection(int peer) { return connections_[static_cast<size_t>(peer)].get(); }
  // The rest expects the lock.
  Result<void> usable();
  Result<void> broken(Error error);
  Result<bool> progress();
  void sleep(std::unique_lock<std::mutex>& lock, Deadline deadline);
  void lead(std::unique_lock<std::mutex>& lock, Deadline deadline);
  void note_closed(int peer);
  Result<void> check_closed();
  void wake();

  const int rank_;
  const std::vector<Peer> peers_;
  const pid_t process_;
  Socket epoll_;
  Socket event_;

  std::mutex mutex_;
  std::condition_variable followers_wake_;
  int followers_ = 0;
  bool leading_ = false;
  std::vector<std::unique_ptr<Connection>> connections_;  // null for this rank
  std::optional<Error> failure_;
  // The first peer that closed its side, and when we saw it.
  int closed_peer_ = -1;
  Deadline closed_since_{};

  std::atomic<bool> aborted_{false};
  std::mutex abort_mutex_;
  std::optional<Error> abort_reason_;
};

}  // namespace pushpull::transport
