#include "core/cores.h"

#include <algorithm>
#include <thread>

namespace pushpull {

bool ranks_outnumber_cores(const Group& group) {
  const std::string& here = group.members[static_cast<size_t>(group.rank)].boot_id;
  const auto ranks = std::count_if(group.members.begin(), group.members.end(),
                                   [&](const Member& m) { return m.boot_id == here; });
  return static_cast<size_t>(ranks) > std::thread::hardware_concurrency();
}

}  // namespace pushpull
