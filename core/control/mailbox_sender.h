// Frames into a mailbox, with the connection that wakes its reader.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/control/connection.h"
#include "core/control/io_thread.h"
#include "core/control/mailbox.h"

namespace pushpull {

// Any thread; keeps order; does not block: what finds the mailbox full is written by the loop.
class MailboxSender : public std::enable_shared_from_this<MailboxSender> {
 public:
  // `bell`: the frame that wakes the reader. `stuck`: it stopped reading; on the thread that found out.
  MailboxSender(IoThread& io, const MailboxPair& pair, std::shared_ptr<Connection> connection,
                std::string bell, std::function<void()> stuck);

  void send(std::string_view frames);

 private:
  IoThread& io_;
  MailboxWriter writer_;
  const std::shared_ptr<Connection> connection_;
  const std::string bell_;
  const std::function<void()> stuck_;
  std::atomic<bool> retrying_ = false;
};

}  // namespace pushpull
