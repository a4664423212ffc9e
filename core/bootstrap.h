// From settings to a connected group: finds rank 0, joins its coordinator, connects the backend.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "core/backend.h"
#include "core/control/io_thread.h"
#include "core/control/link.h"
#include "core/control/server.h"
#include "core/group.h"
#include "core/inbox.h"
#include "core/log.h"
#include "core/net/acceptor.h"
#include "core/net/mesh.h"
#include "core/registry.h"
#include "core/rendezvous.h"
#include "core/scheduler.h"
#include "core/settings.h"

namespace pushpull {

// Everything that a connected store is made of. Members are destroyed from the last to the first.
struct Session {
  std::unique_ptr<IoThread> io;
  std::unique_ptr<ControlServer> server;  // rank 0 only
  std::unique_ptr<ControlLink> link;      // null where the group is one rank
  std::unique_ptr<Inbox> inbox;
  Group group;
  std::shared_ptr<Scheduler> scheduler;   // shared with the loop's timer
  std::jthread withdrawing;               // rank 0: takes its advert away, while nobody waits for that

  ~Session();
};

// `identity` is settled by the caller (see core/identity.h).
[[nodiscard]] Result<std::unique_ptr<Session>> connect_group(const Settings& settings,
                                                             const Identity& identity,
                                                             Registry& registry,
                                                             std::shared_ptr<Logger> logger);

// This process as a member, without rank and address.
Member describe_this_process(const Settings& settings);

}  // namespace pushpull
