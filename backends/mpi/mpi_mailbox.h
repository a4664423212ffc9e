// Short texts between ranks, for what has to be agreed before a group can exchange.
//
// A letter has a subject by which it is asked for; letters of one sender with one subject are taken
// in the order in which they were sent. Nothing is received before somebody asks, and nothing
// blocks, so that a rank that never comes costs no more than a deadline. Thread-safe.
#pragma once

#include <mpi.h>

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/deadline.h"
#include "core/error.h"

namespace pushpull {

class MpiProcess;

class MpiMailbox {
 public:
  // `communicator` is for pushpull alone; letters travel with kLetterTag.
  MpiMailbox(MpiProcess& process, MPI_Comm communicator);

  static constexpr int kLetterTag = 1;

  MPI_Comm communicator() const { return communicator_; }

  // Returns at once. Subject and text together up to 64 KiB.
  [[nodiscard]] Result<void> send(int to, std::string_view subject, std::string_view text);
  // nullopt: there was none until the deadline.
  [[nodiscard]] Result<std::optional<std::string>> take(int from, std::string_view subject,
                                                        Deadline deadline);
  // Whether MPI still holds letters that were sent: over TCP it connects at the first one, and gets
  // on with that only while somebody calls it.
  bool has_unsent() const { return unsent_.load(); }
  // Lets MPI get on with them.
  void push();
  // Subjects of letters that `from` sent and nobody has taken, for error messages.
  std::vector<std::string> waiting(int from) const;

 private:
  struct Letter {
    int from = 0;
    std::string bytes;  // as sent: length of the subject, subject, text
    MPI_Request request = MPI_REQUEST_NULL;
    std::string_view subject() const;
    std::string_view text() const;
  };

  Result<void> receive();  // what has arrived, into letters_
  void drop_sent();
  std::optional<std::string> find(int from, std::string_view subject);

  MpiProcess& process_;
  const MPI_Comm communicator_;
  mutable std::mutex mutex_;
  std::list<Letter> sending_;  // until MPI no longer needs the memory
  std::atomic<bool> unsent_{false};
  std::list<Letter> arriving_;
  std::list<Letter> letters_;
};

}  // namespace pushpull
