// What happens in one simulation: the program that all ranks run, and what goes wrong. All of it
// follows from the seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/control/coordinator.h"
#include "core/control/messages.h"

namespace pushpull::simulator {

using Microseconds = std::chrono::microseconds;

// One call of the program.
struct Op {
  CallKind kind = CallKind::kPushPull;
  std::string key;
  Signature signature;
  int priority = 0;
};

// What one rank does instead of a call of the program.
enum class Twist {
  kMismatch,   // the same call with another signature
  kWithdraw,   // reserves it and takes it back
  kSkip,       // never makes it, and goes on only when the others were told that it failed
  kOtherKind,  // broadcasts what the others pushpull
  kLate,       // comes to this step when the others have given it up
};
struct Twisted {
  int rank;
  size_t op;
  Twist twist;
};

// What ends the group.
enum class Injury {
  kCut,       // the process dies: its connection is lost
  kSilence,   // the process is stopped: its connection stays
  kGiveUp,    // abort()
  kGarbage,   // a message that cannot be
  kExchange,  // its data plane fails though everybody is well
};
struct Injured {
  int rank;
  Injury injury;
  Microseconds when;  // after the group is ready (kCut, kSilence: after the welcome)
};

struct EarlyLeaver {
  int rank;
  size_t ops;          // how many it makes
  bool waits_for_ops;  // says goodbye only when they have ended
  bool patient;        // waits for its farewell however long
};

// Some ranks have less data: they make fewer of the steps before the join that all make.
struct Epoch {
  size_t join = 0;               // which step is the join
  std::vector<size_t> has_data;  // by rank: for how many of the steps before
};

struct Scenario {
  uint64_t seed = 0;
  int size = 1;
  CoordinatorOptions options;
  std::vector<std::vector<Op>> steps;
  bool reserve_early = false;  // numbers are taken in program order, announced in another
  bool synchronous = true;     // a step ends before the next begins
  int max_delay_us = 100;      // of the network, one way
  int max_compute_us = 1000;
  int max_exchange_us = 1000;
  std::vector<Twisted> twists;
  std::vector<Injured> injuries;
  std::optional<EarlyLeaver> leaver;
  std::optional<Epoch> epoch;
  // The coordinator's own process is stopped for a while.
  Microseconds pause_at{-1};
  Microseconds pause{0};

  std::string describe() const;
};

Scenario make_scenario(uint64_t seed);

}  // namespace pushpull::simulator
