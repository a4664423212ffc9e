#include <fmt/format.h>

#include "core/control/coordinator_state.h"

namespace pushpull {

// All earlier calls of the rank have ended, so it has announced no open call but the join (and such
// as fail on each rank as it comes, which count as made where nobody comes any more).
void Coordinator::State::go_away(int rank, Slot join) {
  at(rank).away = true;
  ++num_away;
  calls[join].begin = static_cast<uint64_t>(rank);
  if (num_away == options.size) return;
  std::vector<Slot> open;
  for (Slot slot = calls.oldest(); slot != kNoCall; slot = calls[slot].newer)
    if (slot != join) open.push_back(slot);
  std::vector<Slot> not_awaited;
  for (const auto& [call, failed] : failing)
    not_awaited.push_back(calls.find(call.first, call.second));
  for (const Slot slot : not_awaited) fail_on_arrival(slot, rank, true);
  for (const Slot slot : open) {
    stand_in(slot);
    if (calls[slot].stage == Stage::kWaiting && calls.complete(slot)) everyone_came(slot);
  }
}

void Coordinator::State::come_back() {
  for (Rank& rank : ranks) rank.away = false;
  num_away = 0;
}

void Coordinator::State::stand_in(Slot slot) {
  const GroupCall& call = calls[slot];
  if (num_away == 0 || call.announced + static_cast<uint32_t>(num_away) < ranks.size()) return;
  const uint32_t key = call.key;
  const uint64_t number = call.number;
  const std::vector<int> absent = calls.missing(slot);
  if (keys[key].kind == CallKind::kBroadcast) {
    fail_call(key, number, ErrorCode::kInvalidArgument, absent.front(),
              fmt::format("{} cannot go on: {} has joined, as one that has no more data, and would "
                          "miss the value; broadcast before the first join() or after it",
                          keys.describe_call(key, number), describe(absent.front())));
    return;
  }
  tell_name(key);
  for (const int rank : absent) {
    calls.announce(slot, rank, call.variant);
    output.send(rank, StandIn{.id = key,
                              .call = number,
                              .signature = keys[key].variants[call.variant].signature});
  }
}

}  // namespace pushpull
