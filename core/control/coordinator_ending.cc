#include <algorithm>

#include <fmt/format.h>

#include "core/control/coordinator_state.h"

namespace pushpull {

// ---- leaving ----

void Coordinator::State::handle(int rank, const Goodbye&, Time) {
  if (std::exchange(at(rank).leaving, true)) return;
  leavers.push_back(rank);
  ++unanswered;
  fail_calls_without(rank);
}

std::string Coordinator::State::left_before(int leaver, uint32_t key, uint64_t call) const {
  return fmt::format("{} left before making {}", describe(leaver), keys.describe_call(key, call));
}

// Calls that the leaver has not announced will never be complete.
void Coordinator::State::fail_calls_without(int leaver) {
  std::vector<std::pair<uint32_t, uint64_t>> hopeless;
  for (Slot slot = calls.oldest(); slot != kNoCall; slot = calls[slot].newer)
    if (!calls.has_announced(slot, leaver))
      hopeless.emplace_back(calls[slot].key, calls[slot].number);
  for (const auto& [key, call] : hopeless)
    fail_call(key, call, ErrorCode::kPeerLost, leaver, left_before(leaver, key, call));
  std::vector<Slot> not_awaited;
  for (const auto& [call, failed] : failing)
    not_awaited.push_back(calls.find(call.first, call.second));
  for (const Slot slot : not_awaited) fail_on_arrival(slot, leaver, false);
}

// The leaver went without waiting for calls that it had announced.
void Coordinator::State::fail_calls_with(int leaver) {
  std::vector<std::pair<uint32_t, uint64_t>> hopeless;
  for (Slot slot = calls.oldest(); slot != kNoCall; slot = calls[slot].newer)
    if (calls.has_announced(slot, leaver))
      hopeless.emplace_back(calls[slot].key, calls[slot].number);
  for (const auto& [key, call] : hopeless)
    fail_call(key, call, ErrorCode::kPeerLost, leaver,
              fmt::format("{} left while {} waited for other ranks", describe(leaver),
                          keys.describe_call(key, call)));
}

// Every batch that was cut has been finished by all who are still there, and no call is about to
// be.
bool Coordinator::State::everything_done() const {
  return batcher.empty() && std::all_of(ranks.begin(), ranks.end(), [&](const Rank& r) {
           return r.farewelled || r.finished >= cut;
         });
}

void Coordinator::State::say_farewells() {
  if (!everything_done()) return;
  for (const int rank : leavers) {
    if (at(rank).farewelled || calls.open_of(rank) > 0) continue;
    at(rank).farewelled = true;
    --unanswered;
    liveness.excuse(rank);
    output.send(rank, Farewell{});
  }
}

// ---- verdicts ----

void Coordinator::State::judge_loss(int rank, std::string_view why) {
  if (at(rank).farewelled) return;
  if (at(rank).leaving && everything_done()) {
    // It did not wait for its farewell, but nobody needs it any more.
    at(rank).farewelled = true;
    --unanswered;
    fail_calls_with(rank);
    return;
  }
  std::string message = fmt::format("{} died: its connection was lost", describe(rank));
  if (!why.empty()) message += fmt::format(" ({})", why);
  end_group(Error(ErrorCode::kPeerLost, std::move(message)).at_rank(rank));
}

void Coordinator::State::judge_silence(Time now) {
  const auto rank = liveness.silent(now);
  if (!rank) return;
  end_group(Error(ErrorCode::kPeerLost,
                  fmt::format("{} went silent: nothing heard for {}", describe(*rank),
                              format_duration(options.heartbeat_timeout)))
                .at_rank(*rank));
}

// A failed exchange is evidence, no verdict: whoever noticed first often only saw a neighbour that
// was itself going down. A lost connection explains it better, if one comes.
void Coordinator::State::handle(int rank, const Evidence& message, Time now) {
  const bool idle = at(rank).finished >= cut;
  const bool suspect_known = valid(message.suspect);
  if (at(rank).farewelled || (idle && suspect_known && at(message.suspect).farewelled)) return;
  if (std::any_of(reports.begin(), reports.end(), [&](const Report& r) { return r.rank == rank; }))
    return;
  if (reports.empty()) reports_due = now + options.verdict_delay;
  reports.push_back({rank, message.batch, suspect_known ? message.suspect : -1, message.message});
}

void Coordinator::State::judge_reports(Time now) {
  if (now < reports_due) return;
  const Report& first = reports.front();
  std::string message = fmt::format("the exchange failed on {} in batch {}: {}",
                                    describe(first.rank), first.batch, first.message);
  if (reports.size() > 1) {
    std::vector<int> others;
    for (size_t i = 1; i < reports.size(); ++i) others.push_back(reports[i].rank);
    std::sort(others.begin(), others.end());
    message += fmt::format(" (it failed on {} too)", ranks_phrase(others));
  }
  Error reason(ErrorCode::kAborted, std::move(message));
  end_group(reason.at_rank(first.rank).make_restartable());
}

void Coordinator::State::handle(int rank, const GiveUp& message, Time) {
  end_group(
      Error(ErrorCode::kAborted, fmt::format("{} gave up: {}", describe(rank), message.reason))
          .at_rank(rank));
}

void Coordinator::State::malformed(int rank, std::string_view what) {
  end_group(Error(ErrorCode::kAborted,
                  fmt::format("{} sent a malformed message: {}", describe(rank), what))
                .at_rank(rank));
}

// The first verdict stands.
void Coordinator::State::end_group(Error reason) {
  if (verdict) return;
  verdict = std::move(reason);
  output.send_all(Aborted{.code = verdict->code(),
                          .culprit = verdict->rank(),
                          .restartable = verdict->restartable(),
                          .message = verdict->message()});
}

}  // namespace pushpull
