// Connects what carries the tensors: shared memory among ranks of one host, the backend between
// hosts, or both joined.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/backend.h"
#include "core/collective.h"
#include "core/control/link.h"
#include "core/deadline.h"
#include "core/error.h"
#include "core/group.h"
#include "core/inbox.h"
#include "core/log.h"
#include "core/net/mesh.h"
#include "core/registry.h"
#include "core/settings.h"

namespace pushpull {

struct DataPlane {
  const Settings& settings;
  Registry& registry;
  Backend& backend;  // the named one; `self` for one rank
  TcpMesh* mesh;     // null where the backend needs none
  Inbox& inbox;
  ControlLink& link;
  Logger& logger;
  Deadline deadline;
  // Memory that rank 0 and `other`, one of them this rank, have in common, as in Group::shares. Called
  // when all ranks of the host are known to share memory.
  std::function<void(int other, std::byte* memory, std::shared_ptr<void> owner)> share_control;
};

// Every rank that may share memory tries to; the coordinator hears how it went and tells all ranks
// who does, so that they agree on `group->layout`, which this fills in.
[[nodiscard]] Result<std::unique_ptr<Collective>> connect_data_plane(const DataPlane& plane,
                                                                     Group& group);

}  // namespace pushpull
