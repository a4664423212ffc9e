// A rank's end of the control plane: what it says to the coordinator and what it hears.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/control/connection.h"
#include "core/control/io_thread.h"
#include "core/control/mailbox.h"
#include "core/control/messages.h"
#include "core/deadline.h"
#include "core/net/socket.h"

namespace pushpull {

class ControlLink {
 public:
  // Called by one thread at a time, without locks held.
  struct Receiver {
    std::function<void(const ToRank&)> message;
    // The coordinator is gone: closed, reset or silent. Not called after an Aborted or Farewell message.
    std::function<void(const std::string& why)> lost;
  };

  virtual ~ControlLink() = default;
  // Nothing is received before.
  virtual void start(Receiver receiver) = 0;
  // Any thread; keeps the order of one caller's messages; does not block.
  virtual void send(std::span<const FromRank> messages) = 0;
  // Before any call of this rank: what this rank and `rank` have to say to each other goes through
  // memory that they share from here on. The coordinator's own link shares with each other rank,
  // theirs with rank 0.
  virtual void share(int rank, const MailboxPair& pair) = 0;
  // For threads that wait: receives what has come through shared memory. True where there was
  // something. Any thread.
  virtual bool poll() = 0;
  // Between watch(true) and watch(false) some thread of this process calls poll() all the time, and
  // nobody has to wake the loop's thread. After watch(false) follows a drain(), which receives what
  // came just before. Any thread, one at a time; watch() calls nobody back.
  virtual void watch(bool on) = 0;
  virtual void drain() = 0;
  // Nothing is received afterwards. Any thread.
  virtual void close() = 0;
  // -1 where there is no descriptor. For a fork's child.
  virtual int fd() const = 0;
};

// Over an authenticated socket, with heartbeats: every quarter of the limit this rank says that it
// lives, and after the limit without a byte from the coordinator the link is lost.
std::unique_ptr<ControlLink> make_socket_link(IoThread& io, Socket socket, Duration heartbeat_timeout);

}  // namespace pushpull
