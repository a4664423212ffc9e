// A rank's half of the agreement: keeps its calls, announces them, runs the batches that the
// coordinator cuts, and ends every call exactly once.
//
// Batches are run by one thread at a time: the data thread, or a thread that waits for a work (who
// waits, drives). The latter also polls the link, so that where ranks share memory a small call on
// an idle group passes through no other thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/collective.h"
#include "core/control/link.h"
#include "core/control/messages.h"
#include "core/error.h"
#include "core/group.h"
#include "core/log.h"
#include "core/work_state.h"

namespace pushpull {

struct KeyEntry;

// One call of this rank, from submit() until its work is complete.
struct Call {
  CallKind kind = CallKind::kPushPull;
  std::string key;
  uint64_t number = 0;  // 0: the next one
  int32_t priority = 0;
  Signature signature;
  size_t count = 0;                 // elements of each tensor
  std::vector<const void*> ins;     // pushpull: this rank's copies; broadcast: the value
  std::vector<void*> outs;
  std::shared_ptr<WorkState> work;

  // The scheduler's own.
  KeyEntry* entry = nullptr;
  bool batched = false;     // some piece of it was handed to the data thread
  bool last_piece = false;  // all of its pieces were
  int open_pieces = 0;      // handed over and not done
  std::vector<std::byte> local_sum;
};

class Scheduler {
 public:
  struct Options {
    Duration leave_timeout = std::chrono::seconds(5);
    // How long a data-plane error waits for the coordinator's word.
    Duration verdict_wait = std::chrono::milliseconds(1500);
    // Rank 0: a batch starts.
    std::function<void(uint64_t)> batch_started;
    // Whether threads that wait may drive: where the link has something to poll, and every rank of
    // this host has a core.
    bool drive = false;
  };

  Scheduler(Group group, std::unique_ptr<Collective> collective, ControlLink& link,
            std::shared_ptr<Logger> logger, Options options);
  // Fails what is left and joins the data thread. No message may arrive any more.
  ~Scheduler();

  // A call that is made after a join was and before all ranks have joined fails, on every rank.
  uint64_t reserve(CallKind kind, std::string_view key);
  void submit(std::unique_ptr<Call> call);
  void withdraw(CallKind kind, std::string_view key, uint64_t number, std::string_view reason);

  // For the works of submitted calls; null where waiting threads only wait.
  const std::shared_ptr<WorkDriver>& driver() const { return driver_; }

  // From the link.
  void receive(const ToRank& message);
  void coordinator_lost(const std::string& why);

  // Ends every call with this error, now and later. The first one stays.
  void fail_group(const Error& error);
  std::optional<Error> failure() const;

  // Waits for this rank's calls, says goodbye and waits for the answer; each at most the leave timeout.
  void leave();
  // Sends what has not been reported yet, and looks at the link where its watcher runs a batch; from
  // the loop's timer.
  void report_progress();

  std::string dump() const;
  // What is done with the coordinator's answers to Explain. Set once.
  void when_explained(std::function<void(const std::string&)> f);
  // In the child of a fork: forgets the data thread.
  void abandon();

 private:
  struct Piece {
    Call* call;
    size_t begin, end;
    bool last;
  };
  struct RunnableBatch {
    uint64_t number;
    CallKind kind;
    std::vector<Piece> pieces;
    size_t bytes;
  };

  KeyEntry& entry(CallKind kind, std::string_view key);
  uint64_t reserve_locked(KeyEntry& entry);
  void announce_ready(KeyEntry& entry);
  uint32_t definition(KeyEntry& entry, const Signature& signature);
  void end_call(KeyEntry& entry, uint64_t number);
  void on_batch(const Batch& batch);
  void on_failed(const Failed& failed);
  void on_stand_in(const StandIn& stand_in);
  bool made_after_join(const KeyEntry& entry, uint64_t number) const;
  std::vector<std::unique_ptr<Call>> take_calls(bool batched);
  // An orderly end has nothing under way that the backend would have to drop.
  void end_group(const Error& error, bool orderly);
  void flush();

  class Driver;
  void run();
  void run_front(std::unique_lock<std::mutex>& lock);
  void drive(const WorkState& work, Deadline deadline);
  void drive_again();
  bool run_waiting_batch();
  void note_runnable();
  void stop_watching(std::unique_lock<std::mutex>& lock);
  Result<void> run_batch(const RunnableBatch& batch);
  void piece_done(const Piece& piece);
  void settle(uint64_t batch, const Error& error);

  const Group group_;
  const std::unique_ptr<Collective> collective_;
  ControlLink& link_;
  const std::shared_ptr<Logger> logger_;
  const Options options_;

  mutable std::mutex mutex_;
  std::condition_variable runnable_;  // data thread: a batch, a failure, a watch to end, or the end
  std::condition_variable changed_;   // leave(), settle(): calls ended, farewell, failure
  std::unordered_map<std::string, std::unique_ptr<KeyEntry>> entries_[kNumCallKinds];
  std::unordered_map<uint32_t, KeyEntry*> named_;
  std::deque<RunnableBatch> batches_;
  std::atomic<bool> runnable_batch_ = false;  // one that nobody runs, for a look without the lock
  bool busy_ = false;                        // some thread runs a batch
  int drivers_ = 0;                          // threads in drive()
  int vain_ = 0;                             // how many waits only sleep after a vain look,
  int skip_ = 0;                             // and how many still do
  // The link is watched for a while after the last driver has gone, since another call often
  // follows soon. The data thread sees to the end of it.
  bool watching_ = false;
  bool lingering_ = false;
  Clock::time_point linger_until_{};
  std::vector<FromRank> outbox_;
  bool sending_ = false;
  uint32_t definitions_ = 0;
  uint64_t sequence_ = 0;
  size_t open_calls_ = 0;             // reserved and not ended
  struct Waiting {
    uint64_t sequence;  // of a barrier
    size_t earlier;     // calls reserved before it that are still open
  };
  std::deque<Waiting> barriers_;      // and joins
  uint64_t joining_ = 0;              // sequence of the join that goes on; 0: none
  uint64_t running_ = 0, finished_ = 0, reported_ = 0;
  std::optional<Error> failure_;
  std::function<void(const std::string&)> explained_;
  bool leaving_ = false, farewell_ = false, stop_ = false;
  std::shared_ptr<WorkDriver> driver_;
  std::thread thread_;
};

}  // namespace pushpull
