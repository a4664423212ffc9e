#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "core/control/coordinator_state.h"

namespace pushpull {

void Coordinator::State::fail_call(uint32_t key, uint64_t call, ErrorCode code, int culprit,
                                   std::string message) {
  tell_name(key);
  calls.end(key, call);
  if (keys[key].kind == CallKind::kJoin) come_back();
  output.send_all(Failed{
      .id = key, .call = call, .code = code, .culprit = culprit, .message = std::move(message)});
}

void Coordinator::State::handle(int rank, const Withdraw& message, Time now) {
  const auto key = keys.number(message.kind, message.key);
  if (!key || message.call == 0 || !calls.in_reach(*key, message.call)) {
    malformed(rank, "it withdrew a call that cannot be");
    return;
  }
  at(rank).last_call = now;
  Slot slot = calls.find(*key, message.call);
  if (slot == kEndedCall) return;
  if (slot != kNoCall && calls.has_announced(slot, rank)) {
    // It takes part already, with zeros: that word and this one have crossed.
    if (at(rank).away && keys[*key].kind != CallKind::kJoin) return;
    malformed(rank, fmt::format("it withdrew {}, which it had announced",
                                keys.describe_call(*key, message.call)));
    return;
  }
  if (slot == kNoCall) slot = calls.open(*key, message.call, now);
  if (calls[slot].stage != Stage::kFailing)
    fail_as_they_come(
        slot, {.id = *key,
               .call = message.call,
               .code = ErrorCode::kAborted,
               .culprit = rank,
               .message = fmt::format("{} withdrew {}: {}", describe(rank),
                                      keys.describe_call(*key, message.call), message.reason)});
  if (calls.find(*key, message.call) == slot) fail_on_arrival(slot, rank, true);
  note_facing(*key, now);
}

// A Failed that reaches a rank which has not made the call counts it as made there. One that is
// only late would then take another number for its own call: it hears of the failure when it comes.
void Coordinator::State::fail_as_they_come(Slot slot, Failed failed) {
  tell_name(failed.id);
  if (keys[failed.id].kind == CallKind::kJoin && calls[slot].announced > 0) come_back();
  calls.make_failing(slot);
  for (int r = 0; r < options.size; ++r)
    if (calls.has_announced(slot, r) && !at(r).lost) output.send(r, failed);
  const std::pair id(failed.id, failed.call);
  failing.emplace(id, std::move(failed));
  for (const int leaver : leavers)
    if (calls.find(id.first, id.second) == slot) fail_on_arrival(slot, leaver, false);
  for (int r = 0; r < options.size && num_away > 0; ++r)
    if (at(r).away && calls.find(id.first, id.second) == slot) fail_on_arrival(slot, r, true);
}

void Coordinator::State::fail_on_arrival(Slot slot, int rank, bool tell) {
  const auto failed = failing.find({calls[slot].key, calls[slot].number});
  if (failed == failing.end() || calls.has_announced(slot, rank)) return;
  calls.announce(slot, rank, calls[slot].variant);
  if (tell) output.send(rank, failed->second);
  if (!calls.complete(slot)) return;
  failing.erase(failed);
  calls.end(calls[slot].key, calls[slot].number);
}

// ---- mismatch ----

// "key 'w' differs between ranks: rank 0 has float32 (64, 3), ranks 1-2 have float16 (64, 3); give
// this key the same shape, dtype and scale on every rank"
void Coordinator::State::fail_mismatched(Slot slot) {
  const GroupCall& call = calls[slot];
  std::map<uint32_t, std::vector<int>> by_variant;
  std::vector<uint32_t> variants(ranks.size(), call.variant);
  for (const auto& [rank, variant] : call.deviants) variants[static_cast<size_t>(rank)] = variant;
  for (int r = 0; r < options.size; ++r)
    if (!at(r).away) by_variant[variants[static_cast<size_t>(r)]].push_back(r);

  std::vector<std::pair<std::vector<int>, uint32_t>> sides;
  for (auto& [variant, who] : by_variant) sides.emplace_back(std::move(who), variant);
  std::sort(sides.begin(), sides.end());
  const Key& key = keys[call.key];
  std::string message = fmt::format("key {} differs between ranks: ", quoted_key(key.name));
  int culprit = -1;
  constexpr size_t kMaxSides = 8;
  for (size_t i = 0; i < sides.size() && i < kMaxSides; ++i) {
    const auto& [who, variant] = sides[i];
    message += fmt::format("{}{} {} {}", i == 0 ? "" : ", ", ranks_phrase(who),
                           who.size() == 1 ? "has" : "have",
                           key.variants[variant].signature.describe(key.kind));
    // Where all others agree, the one that does not is to blame.
    if (sides.size() == 2 && who.size() == 1 && options.size > 2) culprit = who.front();
  }
  if (sides.size() > kMaxSides) message += fmt::format(" and {} more", sides.size() - kMaxSides);
  message += fmt::format("; give this key the same shape, dtype and {} on every rank",
                         key.kind == CallKind::kBroadcast ? "root" : "scale");
  fail_call(call.key, call.number, ErrorCode::kMismatch, culprit, std::move(message));
}

// A pushpull and a broadcast of one key that between them have every rank will wait for ever,
// unless the ranks only came in different order: they get a while.
void Coordinator::State::note_facing(uint32_t key, Time now) {
  const uint32_t other = keys[key].other;
  if (other == kNoKey || !calls.any_open(other)) return;
  const Slot a = calls.first_waiting(key);
  const Slot b = calls.first_waiting(other);
  if (a == kNoCall || b == kNoCall || (calls[a].facing && calls[b].facing)) return;
  const auto here = calls.announcers(a);
  const auto there = calls.announcers(b);
  int covered = 0;
  for (size_t w = 0; w < here.size(); ++w) covered += __builtin_popcountll(here[w] | there[w]);
  if (covered < options.size) return;
  calls[a].facing = calls[b].facing = true;
  facings.push_back({{key, other}, {calls[a].number, calls[b].number}, now});
}

void Coordinator::State::judge_facing(Time now) {
  std::vector<uint32_t> look_again;
  for (size_t i = 0; i < facings.size();) {
    const Facing facing = facings[i];
    bool still = true;
    for (int side = 0; side < 2; ++side) {
      const Slot slot = calls.find(facing.keys[side], facing.calls[side]);
      still =
          still && slot != kEndedCall && slot != kNoCall && calls[slot].stage == Stage::kWaiting;
    }
    if (still && now < facing.since + options.kind_mismatch_delay) {
      ++i;
      continue;
    }
    facings.erase(facings.begin() + static_cast<ptrdiff_t>(i));
    look_again.push_back(facing.keys[0]);
    if (still) {
      fail_facing(facing);
      continue;
    }
    for (int side = 0; side < 2; ++side)
      if (const Slot slot = calls.find(facing.keys[side], facing.calls[side]);
          slot != kEndedCall && slot != kNoCall)
        calls[slot].facing = false;
  }
  for (const uint32_t key : look_again) note_facing(key, now);
}

void Coordinator::State::fail_facing(const Facing& facing) {
  std::vector<std::pair<std::vector<int>, std::string>> sides;
  std::vector<bool> made_first(ranks.size());
  for (int side = 0; side < 2; ++side) {
    const auto announcers = calls.announcers(calls.find(facing.keys[side], facing.calls[side]));
    std::vector<int> who;
    for (int r = 0; r < options.size; ++r) {
      if (!has_rank(announcers, r)) continue;
      who.push_back(r);
      if (side == 0) made_first[static_cast<size_t>(r)] = true;
    }
    sides.emplace_back(who,
                       fmt::format("{} called {} (call {})", ranks_phrase(who),
                                   to_string(keys[facing.keys[side]].kind), facing.calls[side]));
  }
  std::sort(sides.begin(), sides.end());
  int culprit = -1;
  for (const auto& [who, text] : sides)
    if (who.size() == 1 && options.size > 2) culprit = who.front();
  const std::string message = fmt::format(
      "key {} differs between ranks: {}, {}; make the same calls of this key on every "
      "rank",
      quoted_key(keys[facing.keys[0]].name), sides[0].second, sides[1].second);

  Failed failed[2];
  for (int side = 0; side < 2; ++side) {
    tell_name(facing.keys[side]);
    calls.end(facing.keys[side], facing.calls[side]);
    failed[side] = {.id = facing.keys[side],
                    .call = facing.calls[side],
                    .code = ErrorCode::kMismatch,
                    .culprit = culprit,
                    .message = message};
  }
  // Each rank hears first of the call that it has not made, so that it counts that one before its
  // own call ends and it goes on to the next.
  for (int r = 0; r < options.size; ++r) {
    if (at(r).lost) continue;
    const int mine = made_first[static_cast<size_t>(r)] ? 0 : 1;
    output.send(r, failed[1 - mine]);
    output.send(r, failed[mine]);
  }
}

// ---- stall ----

void Coordinator::State::watch_stall(Time since) {
  if (stall_first > Duration::zero()) stall_check = std::min(stall_check, since + stall_first);
}

void Coordinator::State::judge_stalls(Time now) {
  if (now < stall_check) return;
  stall_check = Time::max();
  // What becomes due within a moment goes with the rest: a rank that hangs stalls many calls at
  // once.
  const auto soon = now + std::min<Duration>(std::chrono::seconds(1), options.stall_warning / 8);
  const bool warns = options.stall_warning > Duration::zero();
  const bool fails = options.stall_timeout > Duration::zero();
  std::vector<Slot> to_fail;
  std::map<std::vector<uint64_t>, std::vector<Slot>> to_warn;
  bool any_due = false;
  for (Slot slot = calls.oldest(); slot != kNoCall; slot = calls[slot].newer) {
    GroupCall& call = calls[slot];
    // Who has joined waits as long as the others have data.
    if (keys[call.key].kind == CallKind::kJoin) continue;
    if (fails && now >= call.since + options.stall_timeout) {
      to_fail.push_back(slot);
      continue;
    }
    if (call.next_warning == call.since) call.next_warning += options.stall_warning;
    if (warns && soon >= call.next_warning) {
      any_due = any_due || now >= call.next_warning;
      const auto set = calls.announcers(slot);
      to_warn[{set.begin(), set.end()}].push_back(slot);
    } else if (warns) {
      stall_check = std::min(stall_check, call.next_warning);
    }
    if (fails) stall_check = std::min(stall_check, call.since + options.stall_timeout);
    // The rest is younger, and not due for anything.
    if (soon < call.since + stall_first) break;
  }
  for (const auto& [set, slots] : to_warn) {
    if (any_due) warn_stalled(slots, now);
    for (const Slot slot : slots) stall_check = std::min(stall_check, calls[slot].next_warning);
  }
  for (const Slot slot : to_fail) fail_stalled(slot);
}

void Coordinator::State::fail_stalled(Slot slot) {
  const GroupCall& call = calls[slot];
  const uint32_t key = call.key;
  const uint64_t number = call.number;
  const auto since = call.since;
  const auto missing = calls.missing(slot);
  fail_as_they_come(
      slot, {.id = key,
             .call = number,
             .code = ErrorCode::kTimeout,
             .culprit = missing.size() == 1 ? missing[0] : -1,
             .message = keys.describe_call(key, number) + waits_for(slot, options.stall_timeout)});
  // Who has made other calls since, or waits for others itself, is not late: it passes over this
  // call, which counts as made there.
  for (const int r : missing) {
    const bool goes_on = at(r).last_call >= since || calls.open_of(r) > 0;
    if (goes_on && calls.find(key, number) == slot) fail_on_arrival(slot, r, true);
  }
}

std::string Coordinator::State::waits_for(Slot slot, Duration waited) const {
  return fmt::format(" has waited {} for {}", format_duration(waited),
                     ranks_with_hosts(calls.missing(slot), members));
}

// One line for all calls that wait for the same ranks; the next one when they have waited twice as
// long.
void Coordinator::State::warn_stalled(const std::vector<Slot>& slots, Time now) {
  constexpr size_t kMaxNamed = 8;
  std::string text;
  for (size_t i = 0; i < slots.size(); ++i) {
    GroupCall& call = calls[slots[i]];
    if (i < kMaxNamed) text += (i == 0 ? "" : ", ") + keys.describe_call(call.key, call.number);
    do {
      call.next_warning = call.since + 2 * (call.next_warning - call.since);
    } while (call.next_warning <= now);
  }
  if (slots.size() > kMaxNamed) text += fmt::format(" and {} more", slots.size() - kMaxNamed);
  std::string waits = waits_for(slots[0], now - calls[slots[0]].since);
  if (slots.size() > 1) waits.replace(0, 4, " have");
  output.send_all(Warning{text + waits});
}

}  // namespace pushpull
