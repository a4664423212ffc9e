#include "core/group.h"

#include <map>
#include <tuple>

#include <fmt/format.h>

namespace pushpull {

std::string Group::describe(int r) const {
  if (r < 0 || r >= size()) return fmt::format("rank {}", r);
  const Member& m = members[static_cast<size_t>(r)];
  return fmt::format("rank {} (host {}, pid {})", m.rank >= 0 ? m.rank : r, m.host, m.pid);
}

std::vector<int> candidate_hosts(const std::vector<Member>& members) {
  std::map<std::tuple<std::string, uint64_t>, int> first;
  std::vector<int> hosts;
  for (int r = 0; r < static_cast<int>(members.size()); ++r) {
    const Member& m = members[static_cast<size_t>(r)];
    const bool known = !m.boot_id.empty() && m.network_namespace != 0;
    hosts.push_back(known ? first.try_emplace({m.boot_id, m.network_namespace}, r).first->second : r);
  }
  return hosts;
}

}  // namespace pushpull
