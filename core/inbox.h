// What the coordinator says to this rank: kept while the group connects, handed on afterwards.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/control/link.h"
#include "core/control/messages.h"
#include "core/deadline.h"
#include "core/error.h"
#include "core/scheduler.h"

namespace pushpull {

// Receives from the link: while connecting itself, later it hands on to the scheduler.
class Inbox {
 public:
  ControlLink::Receiver receiver();
  void set_scheduler(Scheduler* scheduler);
  void on_failure(std::function<void(const Error&)> f);  // while connecting; from the link's thread
  std::optional<Error> failure();

  [[nodiscard]] Result<Welcome> wait_for_welcome(Deadline deadline);
  [[nodiscard]] Result<std::vector<int>> wait_for_hosts(Deadline deadline);
  [[nodiscard]] Result<void> wait_until_ready(Deadline deadline);
  bool knows_hosts();

 private:
  void receive(const ToRank& message);
  void lost(const std::string& why);
  void failed(const Error& error);

  std::mutex mutex_;
  std::condition_variable changed_;
  Scheduler* scheduler_ = nullptr;
  std::optional<Welcome> welcome_;
  std::optional<Hosts> hosts_;
  bool ready_ = false;
  std::optional<Error> failure_;
  std::function<void(const Error&)> on_failure_;
};

}  // namespace pushpull
