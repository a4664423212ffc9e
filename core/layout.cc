#include "core/layout.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace pushpull {

Layout::Layout(std::span<const int> hosts) {
  std::map<int, int> index;
  for (size_t r = 0; r < hosts.size(); ++r) {
    const int host = index.try_emplace(hosts[r], static_cast<int>(index.size())).first->second;
    if (host == this->hosts()) ranks_of_.emplace_back();
    std::vector<int>& here = ranks_of_[static_cast<size_t>(host)];
    host_of_.push_back(host);
    local_rank_.push_back(static_cast<int>(here.size()));
    here.push_back(static_cast<int>(r));
  }
  if (ranks_of_.empty()) return;
  const auto smallest =
      std::min_element(ranks_of_.begin(), ranks_of_.end(),
                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  carriers_ = static_cast<int>(smallest->size());
}

Layout Layout::apart(int ranks) {
  std::vector<int> hosts(static_cast<size_t>(ranks));
  std::iota(hosts.begin(), hosts.end(), 0);
  return Layout(hosts);
}

std::vector<int> Layout::counterparts(int local_rank) const {
  std::vector<int> ranks;
  for (const auto& here : ranks_of_) ranks.push_back(here[static_cast<size_t>(local_rank)]);
  return ranks;
}

}  // namespace pushpull
