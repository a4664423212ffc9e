#include <utility>

#include "core/control/coordinator_state.h"

namespace pushpull {

void Coordinator::State::find_candidates() {
  candidates_of = candidate_hosts(members);
  candidates.resize(members.size());
  for (const int first : candidates_of) ++candidates[static_cast<size_t>(first)].unheard;
}

// All or none of the ranks that may share memory do: that one of them cannot is rare, and has to be
// put right.
void Coordinator::State::handle(int rank, const LocalMemory& message, Time) {
  if (std::exchange(at(rank).told_memory, true)) return;
  Candidates& mine = candidates[static_cast<size_t>(candidates_of[static_cast<size_t>(rank)])];
  --mine.unheard;
  if (!message.shared) mine.apart = true;
  if (hosts_published) return;
  for (const Candidates& set : candidates)
    if (set.unheard > 0 && !set.apart) return;
  publish_hosts();
}

void Coordinator::State::publish_hosts() {
  hosts_published = true;
  Hosts message;
  for (int r = 0; r < options.size; ++r) {
    const int first = candidates_of[static_cast<size_t>(r)];
    message.hosts.push_back(candidates[static_cast<size_t>(first)].apart ? r : first);
  }
  keys.set_slices(Layout(message.hosts).slices());
  output.send_all(message);
}

}  // namespace pushpull
