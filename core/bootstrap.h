// From settings to a connected group: finds rank 0, joins its coordinator, connects the backend.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/backend.h"
#include "core/control/io_thread.h"
#include "core/control/link.h"
#include "core/control/server.h"
#include "core/group.h"
#include "core/log.h"
#include "core/net/acceptor.h"
#include "core/net/mesh.h"
#include "core/registry.h"
#include "core/rendezvous.h"
#include "core/scheduler.h"
#include "core/settings.h"

namespace pushpull {

// Receives from the link: while connecting itself, later it hands on to the scheduler.
class Inbox {
 public:
  ControlLink::Receiver receiver();
  void set_scheduler(Scheduler* scheduler);
  void on_failure(std::function<void(const Error&)> f);  // while connecting; from the link's thread
  std::optional<Error> failure();

  [[nodiscard]] Result<Welcome> wait_for_welcome(Deadline deadline);
  [[nodiscard]] Result<void> wait_until_ready(Deadline deadline);

 private:
  void receive(const ToRank& message);
  void lost(const std::string& why);
  void failed(const Error& error);

  std::mutex mutex_;
  std::condition_variable changed_;
  Scheduler* scheduler_ = nullptr;
  std::optional<Welcome> welcome_;
  bool ready_ = false;
  std::optional<Error> failure_;
  std::function<void(const Error&)> on_failure_;
};

// Everything that a connected store is made of. Members are destroyed from the last to the first.
struct Session {
  std::unique_ptr<IoThread> io;
  std::unique_ptr<ControlServer> server;  // rank 0 only
  std::unique_ptr<ControlLink> link;      // null where the group is one rank
  std::unique_ptr<Inbox> inbox;
  Group group;
  std::shared_ptr<Scheduler> scheduler;   // shared with the loop's timer
  std::vector<int> data_descriptors;      // for a fork's child
  std::jthread withdrawing;               // rank 0: takes its advert away, while nobody waits for that

  ~Session();
};

// `identity` is settled by the caller (see core/identity.h).
[[nodiscard]] Result<std::unique_ptr<Session>> connect_group(const Settings& settings,
                                                             const Identity& identity,
                                                             Registry& registry,
                                                             std::shared_ptr<Logger> logger);

// This process as a member, without rank and address.
Member describe_this_process();

}  // namespace pushpull
