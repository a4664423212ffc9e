#include "core/group.h"

#include <fmt/format.h>

namespace pushpull {

std::string Group::describe(int r) const {
  if (r < 0 || r >= size()) return fmt::format("rank {}", r);
  const Member& m = members[static_cast<size_t>(r)];
  return fmt::format("rank {} (host {}, pid {})", r, m.host, m.pid);
}

}  // namespace pushpull
