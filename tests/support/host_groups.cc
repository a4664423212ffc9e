#include "tests/support/host_groups.h"

#include <utility>

namespace pushpull::testing {

HostNetwork::HostNetwork(const Layout& layout) : layout_(layout), whole_(layout.ranks()) {
  for (int h = 0; h < layout_.hosts(); ++h)
    within_.push_back(
        std::make_unique<LoopbackNetwork>(static_cast<int>(layout_.ranks_of(h).size())));
  for (int c = 0; c < layout_.carriers(); ++c)
    across_.push_back(std::make_unique<LoopbackNetwork>(layout_.hosts()));
}

// A group of its own whose members have the whole group's ranks.
Group HostNetwork::part(LoopbackNetwork& network, int index, const std::vector<int>& ranks) {
  Group group = network.group(index);
  for (size_t i = 0; i < ranks.size(); ++i) group.members[i].rank = ranks[i];
  return group;
}

Result<std::unique_ptr<Collective>> HostNetwork::connect(int rank, Registry& registry,
                                                         const Settings& settings,
                                                         const std::string& backend) {
  const Deadline deadline = deadline_in(std::chrono::seconds(30));
  const auto connected = [&](const std::string& name,
                             const Group& group) -> Result<std::unique_ptr<Collective>> {
    auto found = registry.backend(name);
    if (!found) return fail(found.error());
    return (*found)->connect(group, settings, deadline);
  };
  const int host = layout_.host_of(rank), local = layout_.local_rank(rank);
  const std::vector<int>& here = layout_.ranks_of(host);
  Stages stages;
  if (here.size() > 1) {
    auto made = connected("shm", part(*within_[static_cast<size_t>(host)], local, here));
    if (!made) return made;
    stages.local = std::move(*made);
  }
  if (layout_.carries(rank)) {
    auto made = connected(
        backend, part(*across_[static_cast<size_t>(local)], host, layout_.counterparts(local)));
    if (!made) return made;
    stages.across = std::move(*made);
  }
  Group group = whole_.group(rank);
  group.layout = layout_;
  group.stages = &stages;
  return connected("hierarchical", group);
}

}  // namespace pushpull::testing
