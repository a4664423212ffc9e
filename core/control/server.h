// Rank 0's end of the control plane: the coordinator behind sockets.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/control/connection.h"
#include "core/control/coordinator.h"
#include "core/control/io_thread.h"
#include "core/control/link.h"
#include "core/control/mailbox_sender.h"
#include "core/log.h"
#include "core/net/hello.h"
#include "core/net/socket.h"

namespace pushpull {

// Feeds one Coordinator from all ranks' connections and from rank 0 itself, which talks to it by function
// calls through local_link(). Any thread; one at a time is inside the coordinator, and nothing is called
// back while it is.
class ControlServer : private Coordinator::Output {
 public:
  // `settings`: this rank's, which every rank that joins must share (core/agreement.h).
  ControlServer(CoordinatorOptions options, std::string settings, IoThread& io,
                std::shared_ptr<Logger> logger);
  ~ControlServer();

  // The Acceptor's judge and sink for Purpose::kControl. The hello's detail is a Joining; one with other
  // settings ends the group, so that all ranks hear why.
  [[nodiscard]] Result<void> check(const Hello& hello);
  void accepted(const Hello& hello, Socket socket);

  // Rank 0's own membership and its link (one). The link must not outlive the server.
  [[nodiscard]] Result<void> join_locally(const Member& member);
  std::unique_ptr<ControlLink> local_link();

  // Rank 0's data thread starts this batch.
  void batch_started(uint64_t number);

  bool all_joined() const;
  std::string joined_so_far() const;
  void abort(const Error& reason);
  // Waits until every rank has left, or the group has ended and the verdict was delivered; false where
  // the deadline came first.
  bool wait_until_left(Deadline deadline);
  std::string dump() const;
  std::vector<int> descriptors() const;  // for a fork's child

 private:
  friend class LocalLink;
  struct Peer {
    std::shared_ptr<Connection> connection;
    std::string outgoing;  // frames of the event that is being handled
    std::shared_ptr<MailboxSender> mailbox;  // where this rank shares memory with rank 0
  };

  Result<void> check_free(const Hello& hello, const Member& member);
  void send(int rank, const ToRank& message) override;
  void send_all(const ToRank& message) override;
  void queue(int rank, Peer& peer, std::string_view frame, bool last);

  template <class F>
  void handle(F&& event);
  void flush_peers();
  static void flush(Peer& peer, std::string_view frames);
  Result<size_t> take(int rank, std::string_view bytes);
  Result<size_t> hear(int rank, std::string_view bytes);

  void lose(int rank, const std::string& why);

  // For LocalLink.
  void share(int rank, const MailboxPair& pair);
  bool poll();
  void watch(bool on);
  void drain();
  void drain(MailboxReader* reader, int rank);

  IoThread& io_;
  std::shared_ptr<Logger> logger_;
  const std::string settings_;
  std::string refused_;  // why a rank may not join, the last one
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Coordinator coordinator_;
  std::map<int, Peer> peers_;  // by rank; ended ones stay until the end
  std::vector<int> waiting_;   // ranks with something in `outgoing`
  std::deque<ToRank> for_local_;
  bool delivering_ = false;
  std::thread::id deliverer_;
  std::shared_ptr<ControlLink::Receiver> local_;
  // Of the ranks that share memory with this one. The list is complete before anybody polls; the
  // loop looks a rank's up in the table.
  std::vector<std::pair<int, std::unique_ptr<MailboxReader>>> readers_;
  std::vector<std::atomic<MailboxReader*>> reader_of_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace pushpull
