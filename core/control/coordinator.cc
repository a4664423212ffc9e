#include "core/control/coordinator.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/control/coordinator_state.h"

namespace pushpull {
namespace {

// Calls that are announced and not over, of one rank and of all: bounds rank 0's memory, not any
// real model.
constexpr uint64_t kMaxOpenOfRank = 1u << 20;
constexpr uint64_t kMaxOpen = 2 * kMaxOpenOfRank;

// The stall clock's first alarm: the earlier of both limits, where 0 is never.
Duration first_alarm(const CoordinatorOptions& o) {
  if (o.stall_warning <= Duration::zero()) return o.stall_timeout;
  if (o.stall_timeout <= Duration::zero()) return o.stall_warning;
  return std::min(o.stall_warning, o.stall_timeout);
}

}  // namespace

Coordinator::State::State(CoordinatorOptions options_in, Output& output_in)
    : options(std::move(options_in)),
      output(output_in),
      members(static_cast<size_t>(options.size)),
      ranks(static_cast<size_t>(options.size)),
      keys(options.size),
      calls(options.size),
      batcher(options.fusion_bytes, keys, calls),
      stall_first(first_alarm(options)),
      liveness(options.size, options.heartbeat_timeout) {}

Coordinator::Coordinator(CoordinatorOptions options, Output& output)
    : state_(std::make_unique<State>(std::move(options), output)) {}
Coordinator::~Coordinator() = default;

// ---- joining ----

Result<void> Coordinator::join(const Member& member, Clock::time_point now) {
  State& s = *state_;
  if (s.verdict) return fail(*s.verdict);
  if (!s.valid(member.rank))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} cannot join a group of {}: ranks go from 0 to {}",
                            describe_member(member), s.options.size, s.options.size - 1));
  const Member& known = s.members[static_cast<size_t>(member.rank)];
  if (s.at(member.rank).joined)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} was claimed twice: by host {}, pid {} and by host {}, pid {}; "
                            "every process needs a rank of its own",
                            member.rank, known.host, known.pid, member.host, member.pid));
  s.members[static_cast<size_t>(member.rank)] = member;
  s.at(member.rank).joined = true;
  if (s.next_heartbeat == State::Time::max() && s.options.heartbeat_timeout > Duration::zero())
    s.next_heartbeat = now + s.options.heartbeat_timeout / 4;
  if (++s.joined == s.options.size) s.welcome(now);
  return {};
}

void Coordinator::State::welcome(Time now) {
  welcomed = true;
  started = now;
  awake(now);
  liveness.start(now);
  find_candidates();
  output.send_all(Welcome{.run = options.run, .generation = 0, .members = members});
}

std::string Coordinator::joined_so_far() const {
  const State& s = *state_;
  std::string text = fmt::format("{} of {} ranks have joined", s.joined, s.options.size);
  std::vector<int> missing;
  for (int r = 0; r < s.options.size; ++r)
    if (!s.at(r).joined) missing.push_back(r);
  if (!missing.empty()) text += fmt::format("; missing {}", format_ranks(missing));
  return text;
}

bool Coordinator::all_joined() const { return state_->joined == state_->options.size; }
bool Coordinator::all_connected() const { return state_->connected == state_->options.size; }
bool Coordinator::aborted() const { return !state_->is_open(); }
std::optional<Error> Coordinator::verdict() const { return state_->verdict; }
const std::vector<Member>& Coordinator::members() const { return state_->members; }

bool Coordinator::all_left() const {
  return std::all_of(state_->ranks.begin(), state_->ranks.end(),
                     [](const State::Rank& r) { return r.farewelled; });
}

// ---- what happens ----

void Coordinator::State::awake(Time now) {
  const Duration away = liveness.awake(now);
  if (away == Duration::zero()) return;
  for (Slot slot = calls.oldest(); slot != kNoCall; slot = calls[slot].newer) {
    calls[slot].since += away;
    calls[slot].next_warning += away;
  }
  for (Facing& facing : facings) facing.since += away;
  if (reports_due != Time::max()) reports_due += away;
}

void Coordinator::receive(int rank, const FromRank& message, Clock::time_point now) {
  State& s = *state_;
  if (!s.is_open() || !s.valid(rank) || !s.at(rank).joined) return;
  if (s.at(rank).lost || s.at(rank).farewelled) return;
  s.awake(now);
  s.liveness.heard(rank, now);
  const bool any_time = std::holds_alternative<Heartbeat>(message) ||
                        std::holds_alternative<GiveUp>(message) ||
                        std::holds_alternative<Explain>(message);
  if (!s.welcomed && !any_time) {
    s.malformed(rank, "it spoke before it was welcomed");
    return;
  }
  if (std::holds_alternative<Explain>(message)) s.output.send(rank, Explanation{dump(now)});
  std::visit([&](const auto& m) { s.handle(rank, m, now); }, message);
  if (s.is_open()) s.advance();
}

void Coordinator::disconnected(int rank, std::string_view why, Clock::time_point now) {
  State& s = *state_;
  if (!s.valid(rank) || !s.at(rank).joined || s.at(rank).lost) return;
  if (!s.welcomed) {
    // Nobody has counted on it yet: it, or a process that replaces it, may come again.
    s.at(rank).joined = false;
    --s.joined;
    return;
  }
  s.awake(now);
  s.liveness.excuse(rank);
  s.at(rank).lost = true;
  if (!s.is_open()) return;
  s.judge_loss(rank, why);
  if (s.is_open()) s.advance();
}

void Coordinator::batch_started(uint64_t number, Clock::time_point now) {
  State& s = *state_;
  if (!s.is_open()) return;
  s.awake(now);
  s.running = std::max(s.running, std::min(number, s.cut));
  s.advance();
}

void Coordinator::tick(Clock::time_point now) {
  State& s = *state_;
  if (!s.is_open()) return;
  s.awake(now);
  if (now >= s.next_heartbeat) {
    s.next_heartbeat = now + s.options.heartbeat_timeout / 4;
    s.output.send_all(CoordinatorHeartbeat{});
  }
  s.judge_reports(now);
  if (s.is_open()) s.judge_silence(now);
  if (s.is_open()) s.judge_facing(now);
  if (s.is_open()) s.judge_stalls(now);
  if (s.is_open()) s.advance();
}

Clock::time_point Coordinator::next_timer() const {
  const State& s = *state_;
  if (!s.is_open()) return Clock::time_point::max();
  auto next = std::min({s.next_heartbeat, s.reports_due, s.stall_check, s.liveness.next_check()});
  for (const State::Facing& f : s.facings)
    next = std::min(next, f.since + s.options.kind_mismatch_delay);
  return next;
}

void Coordinator::abort(const Error& reason) {
  if (state_->is_open()) state_->end_group(reason);
}

// ---- messages ----

void Coordinator::State::handle(int rank, const Connected&, Time) {
  if (std::exchange(at(rank).connected, true)) return;
  if (++connected == options.size) output.send_all(Ready{});
}

void Coordinator::State::handle(int rank, const Define& message, Time) {
  if (const auto defined = keys.define(rank, message); !defined)
    malformed(rank, defined.error().message());
}

void Coordinator::State::handle(int rank, const Announce& message, Time now) {
  if (message.calls.empty()) return;
  if (at(rank).leaving) {
    malformed(rank, "it announced a call after its goodbye");
    return;
  }
  at(rank).last_call = now;
  for (const Announcement& announcement : message.calls)
    if (!announce(rank, announcement, now)) return;
}

// false where the group has ended over it.
bool Coordinator::State::announce(int rank, const Announcement& announcement, Time now) {
  const KeyTable::Local* local = keys.find(rank, announcement.id);
  const uint64_t number = announcement.call;
  if (local == nullptr || number == 0) {
    malformed(rank, fmt::format("key number {} was never defined, or its call has no number",
                                announcement.id));
    return false;
  }
  const uint32_t key = local->key;
  if (at(rank).away) {
    malformed(rank,
              fmt::format("it announced {} after it had joined", keys.describe_call(key, number)));
    return false;
  }
  Slot slot = calls.find(key, number);
  if (slot == kEndedCall) return true;  // too late: its end has been told
  if (slot == kNoCall) {
    if (!leavers.empty()) return fail_after_leaving(rank, key, number);
    slot = open_call(rank, key, number, now);
    if (slot == kNoCall) return false;
  }
  GroupCall& call = calls[slot];
  if (calls.has_announced(slot, rank)) {
    malformed(rank, fmt::format("{} was announced twice", keys.describe_call(key, number)));
    return false;
  }
  if (call.stage == Stage::kFailing) {
    fail_on_arrival(slot, rank, true);
    return true;
  }
  calls.announce(slot, rank, local->variant);
  if (rank == 0) call.priority = announcement.priority;
  if (keys[key].kind == CallKind::kJoin) {
    go_away(rank, slot);
  } else {
    stand_in(slot);
  }
  if ((num_away == 0 || calls.find(key, number) == slot) && calls.complete(slot))
    everyone_came(slot);
  note_facing(key, now);
  return true;
}

// kNoCall where the group has ended over it.
Slot Coordinator::State::open_call(int rank, uint32_t key, uint64_t number, Time now) {
  if (!calls.in_reach(key, number)) {
    malformed(rank, fmt::format("{} is too far ahead", keys.describe_call(key, number)));
    return kNoCall;
  }
  if (calls.open_of(rank) >= kMaxOpenOfRank || calls.open_count() >= kMaxOpen) {
    malformed(rank, fmt::format("it has {} calls open, too many", calls.open_of(rank)));
    return kNoCall;
  }
  watch_stall(now);
  return calls.open(key, number, now);
}

bool Coordinator::State::fail_after_leaving(int rank, uint32_t key, uint64_t number) {
  if (!calls.in_reach(key, number)) {
    malformed(rank, fmt::format("{} is too far ahead", keys.describe_call(key, number)));
    return false;
  }
  fail_call(key, number, ErrorCode::kPeerLost, leavers.front(),
            left_before(leavers.front(), key, number));
  return true;
}

void Coordinator::State::everyone_came(Slot slot) {
  if (!calls[slot].deviants.empty()) {
    fail_mismatched(slot);
    return;
  }
  if (keys[calls[slot].key].kind == CallKind::kJoin) come_back();
  calls.make_ready(slot);
  batcher.add(slot);
}

void Coordinator::State::handle(int rank, const Progress& message, Time) {
  if (message.finished > cut) {
    malformed(rank, fmt::format("it finished batch {}, the last one is {}", message.finished, cut));
    return;
  }
  at(rank).finished = std::max(at(rank).finished, message.finished);
}

// ---- batches ----

void Coordinator::State::advance() {
  cut_batches();
  if (unanswered > 0) say_farewells();
}

// One batch runs at rank 0 and one waits; the next is cut as late as that allows.
void Coordinator::State::cut_batches() {
  if (connected < options.size) return;
  while (cut <= running && !batcher.empty()) {
    Batch& batch = std::get<Batch>(batch_message);
    batch.number = ++cut;
    batcher.cut(&batch);
    for (const BatchEntry& entry : batch.entries) tell_name(entry.id);
    const BatchEntry& first = batch.entries.front();
    recent[cut % recent.size()] = {cut, batch.kind, batch.entries.size(), first.id, first.call};
    output.send_all(batch_message);
  }
}

void Coordinator::State::tell_name(uint32_t key) {
  if (std::exchange(keys[key].told, true)) return;
  output.send_all(Name{.id = key, .kind = keys[key].kind, .key = keys[key].name});
}

}  // namespace pushpull
