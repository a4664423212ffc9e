// Messages between ranks over MPI.
//
// All bytes pass through blocks that belong to this object: MPI cannot be made to let go of memory
// (a send can never be cancelled, a receive not once it is matched), so after an abort the blocks
// that are under way are leaked on purpose, while the caller's memory is free at once. Messages are
// cut into segments of one block, of which a few are under way per peer and direction.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/exchange/point_to_point.h"
#include "backends/mpi/mpi_backoff.h"
#include "backends/mpi/mpi_process.h"
#include "core/group.h"

namespace pushpull {

class MpiPointToPoint : public PointToPoint {
 public:
  // `tag` belongs to this group alone; `world_ranks[r]` is rank r of the group on `communicator`.
  // `patience` is how long wait() waits; 0: for ever.
  MpiPointToPoint(MpiProcess& process, MPI_Comm communicator, int tag, std::vector<int> world_ranks,
                  Group group, Duration patience);
  ~MpiPointToPoint() override;

  int rank() const override { return group_.rank; }
  int size() const override { return group_.size(); }

  [[nodiscard]] Result<Ticket> send(int to, const void* from, size_t bytes) override;
  [[nodiscard]] Result<Ticket> recv(int from, void* to, size_t bytes) override;
  [[nodiscard]] Result<void> wait(Ticket ticket) override;
  [[nodiscard]] Result<bool> test(Ticket ticket) override;
  void abort(const Error& reason) override;

  // Exchanges a message with every other rank, so that connections exist and a rank that cannot be
  // reached is noticed now and named.
  [[nodiscard]] Result<void> greet(Deadline deadline);

 private:
  // Memory that MPI may keep.
  using Block = std::unique_ptr<std::byte[]>;
  // How messages are cut on their way to some peers.
  struct Cut {
    size_t block_bytes;
    int window;  // segments under way per channel
    std::vector<Block> free;
  };

  // One direction with one peer: messages of which a part has not been started, in order.
  struct Channel {
    int peer = 0;
    bool sending = false;
    Cut* cut = nullptr;
    int under_way = 0;
    std::deque<Ticket> waiting;
  };
  struct Message {
    Channel* channel = nullptr;
    std::byte* memory = nullptr;  // only read where it is sent
    size_t bytes = 0;
    size_t started = 0;        // bytes of segments that MPI has been given
    size_t segments_left = 1;  // not finished; an empty message has one, too
    bool done() const { return segments_left == 0; }
  };
  // A segment that MPI works on; requests_[i] is the request of segments_[i].
  struct Segment {
    Ticket ticket = 0;
    Channel* channel = nullptr;
    Block block;
    std::byte* memory = nullptr;
    size_t bytes = 0;
  };

  Result<Ticket> enqueue(Channel& channel, std::byte* memory, size_t bytes);
  Result<void> start_segments(Channel& channel);
  Result<void> start_segment(Channel& channel, Ticket ticket);
  Result<int> progress();  // segments that got finished
  Result<void> finish_segment(size_t index, const MPI_Status& status, bool failed);
  void drop_finished();
  bool done(Ticket ticket) const;
  Message& message(Ticket ticket) { return messages_[ticket - first_ticket_]; }

  Error broken(Error error);  // an error of our own
  Error stop(Error error);    // the first one stays
  std::optional<Error> stopped() const;
  Error peer_error(int code, const Channel& channel) const;
  Error silent(Ticket ticket);

  MpiProcess& process_;
  const MPI_Comm communicator_;
  const int tag_;
  const std::vector<int> world_ranks_;
  // This rank as the whole group calls it.
  int own_name() const { return group_.members[static_cast<size_t>(group_.rank)].rank; }

  const Group group_;
  MpiBackoff backoff_;  // of wait()
  const Duration patience_;

  std::vector<Channel> channels_;  // 2 * peer, plus 1 for receiving
  std::deque<Message> messages_;   // of tickets from first_ticket_ on
  Ticket first_ticket_ = 1;
  std::vector<MPI_Request> requests_;
  std::vector<Segment> segments_;
  std::vector<int> finished_;  // of MPI_Testsome
  std::vector<MPI_Status> statuses_;
  Cut near_, far_;  // to ranks of this host, and of others
  uint64_t finished_segments_ = 0;

  std::atomic<bool> stopped_{false};
  mutable std::mutex reason_mutex_;
  std::optional<Error> reason_;
};

}  // namespace pushpull
