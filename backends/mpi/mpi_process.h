// MPI, which is one per process: initialised once, shared by all stores, finalised at exit.
//
// A thread of its own initialises MPI, so that the same thread can finalise it whichever thread
// creates the first store and whichever runs the exit handlers. In between it makes progress while
// no store is inside a call: what a rank has sent must arrive though it only computes.
//
// Thread-safe.
#pragma once

#include <mpi.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backends/mpi/mpi_mailbox.h"
#include "core/deadline.h"
#include "core/error.h"

namespace pushpull {

// Holds the process's one lock around MPI calls where the library needs it, else nothing.
using MpiLock = std::unique_lock<std::mutex>;

class MpiProcess {
 public:
  // The only one: made at the first call, never destroyed.
  static MpiProcess& instance();

  // Initialises MPI unless that has happened, here or by somebody else (mpi4py). Any number of
  // times. Unavailable where MPI has been finalised, allows only one thread, or did not come up in
  // time.
  [[nodiscard]] Result<void> start(Deadline deadline);

  // What follows needs a successful start().
  int rank() const { return rank_; }
  int size() const { return size_; }
  // To be held around every MPI call.
  MpiLock lock() { return serialized_ ? MpiLock(mpi_mutex_) : MpiLock(); }

  // Messages between the stores of different ranks while they connect. The first call makes the
  // communicator behind it, in which every rank has to take part.
  [[nodiscard]] Result<MpiMailbox*> mailbox(Deadline deadline);

  // A communicator with all ranks for one use, which every rank has to ask for at about the same
  // time.
  [[nodiscard]] Result<MPI_Comm> duplicate(Deadline deadline);

  // A tag on the mailbox's communicator that nobody else in the job uses.
  int draw_tag();

  // A group that is connected. MPI is finalised at exit if all have been closed and none failed: a
  // failed one has messages under way, for which finalising would wait. After one whose peer is
  // said to be lost it is finalised if all ranks come to that within a moment: the last word of an
  // orderly end can be that the coordinator is gone.
  void group_opened() { open_groups_.fetch_add(1); }
  void group_closed() { open_groups_.fetch_sub(1); }
  void group_failed() { failed_.store(true); }
  void peer_lost() { peer_lost_.store(true); }

  // Keeps memory that MPI may still read or write after a failure, for as long as the process
  // lives.
  template <typename T>
  void leave_to_mpi(std::unique_ptr<T> memory) {
    if (memory == nullptr) return;
    const std::lock_guard lock(left_mutex_);
    left_.push_back(std::shared_ptr<T>(std::move(memory)));
  }

  // While it exists a group is inside a call and makes progress itself.
  class Call {
   public:
    explicit Call(MpiProcess& process) : process_(process) {
      process_.inside_.fetch_add(1, std::memory_order_relaxed);
    }
    ~Call() {
      process_.inside_.fetch_sub(1, std::memory_order_relaxed);
      process_.calls_.fetch_add(1, std::memory_order_relaxed);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    MpiProcess& process_;
  };

 private:
  MpiProcess() = default;

  void run();                 // the thread
  Result<void> initialize();  // on the thread
  void keep_progress();       // on the thread, until stop()
  void make_progress();
  void finalize();  // on the thread
  bool all_leave(Deadline deadline);
  void stop();  // at exit

  // The thread and its outcome.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
  std::optional<Result<void>> started_;
  bool stopping_ = false;
  bool initialized_here_ = false;
  pid_t pid_ = 0;

  // Fixed once started.
  bool serialized_ = false;
  int rank_ = 0;
  int size_ = 1;

  std::mutex mpi_mutex_;
  std::atomic<int> open_groups_{0};
  std::atomic<bool> failed_{false};
  std::atomic<bool> peer_lost_{false};
  std::atomic<int> inside_{0};
  std::atomic<uint64_t> calls_{0};
  std::atomic<int64_t> tags_drawn_{0};

  std::mutex left_mutex_;
  std::vector<std::shared_ptr<void>> left_;

  std::mutex mailbox_mutex_;
  std::atomic<MpiMailbox*> mailbox_{nullptr};
  std::optional<Error> mailbox_error_;
  int64_t tags_per_rank_ = 1;
};

}  // namespace pushpull
