// Rank 0's half of the control plane: decides which call runs when, what failed, and who is to blame.
//
// A state machine without sockets, threads or clocks: it is told what arrived and what time it is, and
// answers through an Output. That makes it deterministic, so that a simulator can drive it through any
// order of messages, losses and delays. One thread at a time.
//
// Batches: when every rank has announced a call, it is ready. A batch takes ready calls of the same kind
// (and scales, root), highest priority first (rank 0's priority counts; equal ones in order of readiness),
// up to the fusion size; a call larger than that comes in pieces. A new batch is cut only while fewer than two are
// outstanding at rank 0 (see batch_started), so that an urgent call waits for one batch, not for all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/control/messages.h"
#include "core/deadline.h"

namespace pushpull {

struct CoordinatorOptions {
  int size = 1;
  std::string run;
  size_t fusion_bytes = 4u << 20;
  Duration heartbeat_timeout = std::chrono::seconds(10);
  Duration stall_warning = std::chrono::seconds(30);   // 0: never
  Duration stall_timeout = std::chrono::seconds(600);  // 0: never
  // How long evidence of a data-plane failure waits for a lost connection that explains it.
  Duration verdict_delay = std::chrono::seconds(1);
  // How long calls of one key but different kinds may face each other before it is a mismatch.
  Duration kind_mismatch_delay = std::chrono::seconds(5);
};

class Coordinator {
 public:
  // Must not call back into the coordinator.
  class Output {
   public:
    virtual ~Output() = default;
    virtual void send(int rank, const ToRank& message) = 0;
    virtual void send_all(const ToRank& message) = 0;  // every rank that is still connected
  };

  Coordinator(CoordinatorOptions options, Output& output);
  ~Coordinator();

  // Joining. A rank may join once (InvalidArgument names both hosts and pids otherwise). When the last
  // has joined, all are welcomed.
  [[nodiscard]] Result<void> join(const Member& member, Clock::time_point now);
  // "57 of 64 ranks have joined; missing 3, 9, …" (at most 16 ranks are listed).
  std::string joined_so_far() const;
  bool all_joined() const;
  bool all_connected() const;  // every rank has sent Connected: the group is ready

  void receive(int rank, const FromRank& message, Clock::time_point now);
  // The connection of a rank ended. Before its Goodbye was answered, that is a death; before all
  // have joined nobody counts on it yet, and it may join again.
  void disconnected(int rank, std::string_view why, Clock::time_point now);
  // Rank 0's data thread starts batch `number`.
  void batch_started(uint64_t number, Clock::time_point now);
  // Checks silence, stalls and verdicts, and sends the coordinator's own heartbeats. Call at least
  // at next_timer(): a longer gap counts as time in which this process itself was stopped.
  void tick(Clock::time_point now);
  Clock::time_point next_timer() const;

  // Ends the group with this reason (if it has not ended).
  void abort(const Error& reason);
  bool aborted() const;
  std::optional<Error> verdict() const;  // why the group has ended
  bool all_left() const;       // every rank has said goodbye and was answered
  const std::vector<Member>& members() const;

  // Pending calls and who is missing, last batches, per rank state. For people.
  std::string dump(Clock::time_point now) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pushpull
