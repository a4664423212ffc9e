#include "core/cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace pushpull {

bool ranks_outnumber_cores(const Group& group) {
  const std::string& here = group.members[static_cast<size_t>(group.rank)].boot_id;
  const auto ranks = std::count_if(group.members.begin(), group.members.end(),
                                   [&](const Member& m) { return m.boot_id == here; });
  return static_cast<size_t>(ranks) > std::thread::hardware_concurrency();
}

int this_core() { return ::sched_getcpu(); }

bool leave_core(std::span<const int> taken) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return false;
  cpu_set_t free = allowed;
  for (const int core : taken)
    if (core >= 0) CPU_CLR(static_cast<size_t>(core), &free);
  if (CPU_COUNT(&free) == 0 || ::sched_setaffinity(0, sizeof(free), &free) != 0) return false;
  ::sched_setaffinity(0, sizeof(allowed), &allowed);
  return true;
}

}  // namespace pushpull
