// What a Coordinator remembers. Private to coordinator*.cc, which share the work:
//   coordinator.cc           the public face: joining, messages, batches
//   coordinator_join.cc      ranks that have joined: others' calls go on without them
//   coordinator_failures.cc  what ends a call without a batch: mismatch, stall, withdrawal
//   coordinator_ending.cc    what ends a rank or the group: leaving, death, verdicts
//   coordinator_hosts.cc     which ranks share memory
//   coordinator_dump.cc      the state in words
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/control/batcher.h"
#include "core/control/call_table.h"
#include "core/control/coordinator.h"
#include "core/control/key_table.h"
#include "core/control/liveness.h"

namespace pushpull {

struct Coordinator::State {
  using Time = Clock::time_point;

  struct Rank {
    bool joined = false;
    bool connected = false;   // its data plane
    bool told_memory = false;  // has sent LocalMemory
    bool leaving = false;     // has said goodbye: makes no call any more
    bool farewelled = false;  // everything it took part in is done, it may go
    bool lost = false;        // its connection has ended
    bool away = false;        // has joined, and others have not: makes no call meanwhile
    uint64_t finished = 0;    // batches
    Time last_call{};         // when it last announced or withdrew one
  };
  // Two calls of one key but different kinds that wait for each other's ranks.
  struct Facing {
    uint32_t keys[2];
    uint64_t calls[2];
    Time since;
  };
  // A rank's data plane failed.
  struct Report {
    int rank;
    uint64_t batch;
    int suspect;
    std::string message;
  };
  struct CutBatch {
    uint64_t number = 0;
    CallKind kind = CallKind::kPushPull;
    size_t entries = 0;
    uint32_t key = 0;  // of its first call
    uint64_t call = 0;
  };

  State(CoordinatorOptions options_in, Output& output_in);

  // ---- coordinator.cc ----
  Rank& at(int rank) { return ranks[static_cast<size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks[static_cast<size_t>(rank)]; }
  bool valid(int rank) const { return rank >= 0 && rank < options.size; }
  bool is_open() const { return !verdict.has_value(); }
  void welcome(Time now);
  // Every entry passes here first: moves all clocks on where this process was stopped for a while.
  void awake(Time now);
  void handle(int rank, const Connected&, Time now);
  void handle(int rank, const Define& message, Time now);
  void handle(int rank, const Announce& message, Time now);
  void handle(int rank, const Withdraw& message, Time now);
  void handle(int rank, const Progress& message, Time now);
  void handle(int rank, const Evidence& message, Time now);
  void handle(int rank, const GiveUp& message, Time now);
  void handle(int rank, const Goodbye&, Time now);
  void handle(int, const Heartbeat&, Time) {}
  void handle(int, const Explain&, Time) {}  // answered by the coordinator itself
  void handle(int rank, const LocalMemory& message, Time now);
  bool announce(int rank, const Announcement& announcement, Time now);
  Slot open_call(int rank, uint32_t key, uint64_t number, Time now);
  bool fail_after_leaving(int rank, uint32_t key, uint64_t number);
  void everyone_came(Slot slot);
  // Sends what can be sent now: batches, farewells.
  void advance();
  void cut_batches();
  void tell_name(uint32_t key);

  // ---- coordinator_hosts.cc ----
  void find_candidates();
  void publish_hosts();
  // ---- coordinator_join.cc ----
  // A rank announced its join: from now on calls do not wait for it.
  void go_away(int rank, Slot join);
  // All have joined, or the join failed.
  void come_back();
  // Where all others have announced a call: those that are away take part with zeros.
  void stand_in(Slot slot);

  // ---- coordinator_failures.cc ----
  // Ends a call on every rank; from then on it counts as made.
  void fail_call(uint32_t key, uint64_t call, ErrorCode code, int culprit, std::string message);
  // Ends a call now on the ranks that have made it, and on each other rank as it comes.
  void fail_as_they_come(Slot slot, Failed failed);
  // A rank comes to a failing call, or (untold) has left and never will.
  void fail_on_arrival(Slot slot, int rank, bool tell);
  void fail_mismatched(Slot slot);
  void note_facing(uint32_t key, Time now);
  void judge_facing(Time now);
  void fail_facing(const Facing& facing);
  void watch_stall(Time since);
  void judge_stalls(Time now);
  void fail_stalled(Slot slot);
  void warn_stalled(const std::vector<Slot>& slots, Time now);
  std::string waits_for(Slot slot, Duration waited) const;

  // ---- coordinator_ending.cc ----
  void fail_calls_without(int leaver);
  void fail_calls_with(int leaver);
  std::string left_before(int leaver, uint32_t key, uint64_t call) const;
  void say_farewells();
  bool everything_done() const;
  void judge_loss(int rank, std::string_view why);
  void judge_silence(Time now);
  void judge_reports(Time now);
  void end_group(Error reason);
  void malformed(int rank, std::string_view what);
  std::string describe(int rank) const {
    return describe_member(members[static_cast<size_t>(rank)]);
  }

  CoordinatorOptions options;
  Output& output;
  std::vector<Member> members;
  std::vector<Rank> ranks;
  int joined = 0;
  int connected = 0;
  bool welcomed = false;

  // Ranks that may share memory, and what they found out.
  struct Candidates {
    size_t unheard = 0;
    bool apart = false;  // one of them cannot
  };
  std::vector<int> candidates_of;      // of each rank: candidate_hosts()
  std::vector<Candidates> candidates;  // by their lowest rank
  bool hosts_published = false;
  Time started{};

  KeyTable keys;
  CallTable calls;
  Batcher batcher;
  uint64_t cut = 0;                // last batch cut
  uint64_t running = 0;            // last batch that rank 0 started
  ToRank batch_message = Batch{};  // reused: its memory stays
  std::array<CutBatch, 4> recent;  // batch n at n mod size

  std::map<std::pair<uint32_t, uint64_t>, Failed> failing;  // by key and call, until all came
  std::vector<Facing> facings;
  std::vector<Report> reports;
  Time reports_due = Time::max();
  Time stall_check = Time::max();  // no call is due for a warning or failure before
  Duration stall_first{};          // the earlier of warning and timeout
  Liveness liveness;
  Time next_heartbeat = Time::max();
  std::vector<int> leavers;  // in the order of their goodbyes
  int num_away = 0;          // ranks that have joined
  size_t unanswered = 0;     // leavers without farewell
  std::optional<Error> verdict;
};

}  // namespace pushpull
