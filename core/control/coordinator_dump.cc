#include <algorithm>

#include <fmt/format.h>

#include "core/control/coordinator_state.h"

namespace pushpull {
namespace {

constexpr size_t kMaxCallsShown = 64;
constexpr int kMaxRanksShown = 64;

}  // namespace

std::string Coordinator::dump(Clock::time_point now) const {
  const State& s = *state_;
  const int size = s.options.size;
  const char* phase = s.verdict            ? "ended"
                      : !s.welcomed        ? "joining"
                      : s.connected < size ? "connecting"
                                           : "running";
  std::string text =
      fmt::format("coordinator of run {}: {}; {}\n", s.options.run, phase, joined_so_far());
  if (s.verdict) text += fmt::format("  verdict: {}\n", s.verdict->message());
  text += fmt::format("  batches: {} cut, rank 0 started {}; ready calls: {}\n", s.cut, s.running,
                      s.batcher.waiting());
  for (uint64_t n = s.cut - std::min<uint64_t>(s.cut, s.recent.size()) + 1; n <= s.cut; ++n) {
    const State::CutBatch& b = s.recent[n % s.recent.size()];
    text += fmt::format("    batch {}: {} of {} calls, from {}\n", n, to_string(b.kind), b.entries,
                        s.keys.describe_call(b.key, b.call));
  }
  size_t shown = 0;
  for (Slot slot = s.calls.oldest(); slot != kNoCall; slot = s.calls[slot].newer) {
    if (shown++ == kMaxCallsShown) {
      text += fmt::format("  and more: {} calls are open\n", s.calls.open_count());
      break;
    }
    const GroupCall& call = s.calls[slot];
    text += fmt::format("  {}{}\n", s.keys.describe_call(call.key, call.number),
                        s.waits_for(slot, now - call.since));
  }
  for (int r = 0; r < std::min(size, kMaxRanksShown) && s.welcomed; ++r) {
    const State::Rank& rank = s.at(r);
    const char* state = rank.lost         ? "gone"
                        : rank.farewelled ? "left"
                        : rank.leaving    ? "leaving"
                        : rank.away       ? "joined"
                        : rank.connected  ? "connected"
                                          : "connecting";
    text += fmt::format("  {}: {}, finished batch {}, {} calls open, heard {} ago\n", s.describe(r),
                        state, rank.finished, s.calls.open_of(r),
                        format_duration(now - s.liveness.last_heard(r)));
  }
  return text;
}

}  // namespace pushpull
