// The threads that run batches: the data thread, and those that wait for a work.
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <shared_mutex>
#include <utility>

#include "core/cores.h"
#include "core/net/signals.h"
#include "core/reduce.h"
#include "core/scheduler_state.h"

namespace pushpull {
namespace {

// A driver looks on for this long without news before it sleeps: longer than a rank's wake-up.
constexpr auto kDrive = std::chrono::microseconds(200);
// After this long it gives way between two looks: whom it waits for may want this core.
constexpr auto kSpin = std::chrono::microseconds(3);
// Longer than one look takes unless something else wants the processor, which others need more.
constexpr auto kPreempted = std::chrono::microseconds(50);
// After a vain look that many waits, doubled each time, only sleep.
constexpr int kMaxSkipped = 15;
// A wait that was over so soon, though its thread slept, would have been worth a longer look. Else
// two ranks that skip at different times keep each other asleep.
constexpr auto kWorthDriving = std::chrono::microseconds(400);
constexpr auto kLinger = std::chrono::microseconds(200);
// While a batch of more than this runs, the loop's thread answers those who wake it.
constexpr size_t kWatchedBytes = 64u << 10;

}  // namespace

// Outlives the scheduler where somebody keeps a work.
class Scheduler::Driver final : public WorkDriver {
 public:
  explicit Driver(Scheduler& scheduler) : scheduler_(&scheduler) {}

  void drive(const WorkState& work, Deadline deadline) override {
    const std::shared_lock lock(mutex_);
    if (scheduler_ != nullptr) scheduler_->drive(work, deadline);
  }
  void slept(Duration wait) override {
    if (wait > kWorthDriving) return;
    const std::shared_lock lock(mutex_);
    if (scheduler_ != nullptr) scheduler_->drive_again();
  }
  // Waits for those who drive.
  void detach() {
    const std::unique_lock lock(mutex_);
    scheduler_ = nullptr;
  }

 private:
  std::shared_mutex mutex_;
  Scheduler* scheduler_;
};

Scheduler::Scheduler(Group group, std::unique_ptr<Collective> collective, ControlLink& link,
                     std::shared_ptr<Logger> logger, Options options)
    : group_(std::move(group)),
      collective_(std::move(collective)),
      link_(link),
      logger_(std::move(logger)),
      options_(std::move(options)) {
  if (options_.drive) driver_ = std::make_shared<Driver>(*this);
  const BlockSignals blocked;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "pushpull-data");
}

Scheduler::~Scheduler() {
  fail_group(closed_error());
  if (driver_) static_cast<Driver&>(*driver_).detach();
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  runnable_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Scheduler::abandon() {
  if (thread_.joinable()) thread_.detach();
}

void Scheduler::run() {
  std::unique_lock lock(mutex_);
  const auto wanted = [this] {
    return stop_ || lingering_ || (!busy_ && (failure_ || (drivers_ == 0 && !batches_.empty())));
  };
  for (;;) {
    runnable_.wait(lock, wanted);
    if (!busy_ && failure_) {
      // What was batched ends here, after the backend has let go of its memory.
      stop_watching(lock);
      batches_.clear();
      note_runnable();
      auto calls = take_calls(true);
      const Error error = *failure_;
      lock.unlock();
      for (auto& call : calls) complete(std::move(call), fail(error));
      return;
    }
    if (stop_) return;
    if (!busy_ && drivers_ == 0 && !batches_.empty()) {
      run_front(lock);
    } else if (lingering_) {
      const auto until = linger_until_;
      runnable_.wait_until(lock, until);
      const auto now = Clock::now();
      if (drivers_ > 0 && watching_) {
        linger_until_ = now + kLinger;  // saves the last of them from waking this thread
      } else if (now >= linger_until_) {
        lingering_ = false;
        if (drivers_ == 0) stop_watching(lock);
      }
    }
  }
}

// The lock is released while the batch runs.
void Scheduler::run_front(std::unique_lock<std::mutex>& lock) {
  const RunnableBatch batch = std::move(batches_.front());
  batches_.pop_front();
  running_ = batch.number;
  busy_ = true;
  note_runnable();
  if (batch.bytes > kWatchedBytes) stop_watching(lock);
  lock.unlock();
  if (options_.batch_started) options_.batch_started(batch.number);
  const auto result = run_batch(batch);
  if (!result) settle(batch.number, result.error());
  lock.lock();
  if (result) finished_ = batch.number;
  busy_ = false;
  note_runnable();
  if (failure_ || (!batches_.empty() && drivers_ == 0)) runnable_.notify_one();
}

// ---- threads that wait ----

void Scheduler::drive(const WorkState& work, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (failure_) return;
  if (skip_ > 0) {
    --skip_;
    return;
  }
  ++drivers_;
  bool idle = false;
  auto moved = Clock::now(), looked = moved;
  while (!work.finished.load(std::memory_order_acquire) && !idle) {
    if (!watching_ && !busy_ && !failure_) {
      watching_ = true;
      link_.watch(true);
    }
    lock.unlock();
    while (!work.finished.load(std::memory_order_acquire)) {
      if (link_.poll() || run_waiting_batch()) {
        moved = looked = Clock::now();
        break;
      }
      if (looked - moved < kSpin)
        relax();
      else
        ::sched_yield();
      const auto before = std::exchange(looked, Clock::now());
      if (looked - moved < kDrive && looked - before < kPreempted && looked < deadline) continue;
      idle = true;
      break;
    }
    lock.lock();
  }
  vain_ = idle ? std::min(2 * vain_ + 1, kMaxSkipped) : 0;
  skip_ = vain_;
  if (--drivers_ > 0) return;
  if (idle || failure_) stop_watching(lock);
  if (watching_) {
    linger_until_ = Clock::now() + kLinger;
    // It sleeps until then and looks again.
    if (!std::exchange(lingering_, true)) runnable_.notify_one();
  }
  if (!batches_.empty() && !busy_ && drivers_ == 0) runnable_.notify_one();
}

void Scheduler::drive_again() {
  const std::lock_guard lock(mutex_);
  skip_ = vain_ = 0;
}

void Scheduler::note_runnable() { runnable_batch_ = !busy_ && !batches_.empty(); }

bool Scheduler::run_waiting_batch() {
  if (!runnable_batch_) return false;
  std::unique_lock lock(mutex_);
  if (busy_ || failure_ || batches_.empty()) return false;
  run_front(lock);
  return true;
}

// The lock is released meanwhile.
void Scheduler::stop_watching(std::unique_lock<std::mutex>& lock) {
  if (!std::exchange(watching_, false)) return;
  link_.watch(false);
  lock.unlock();
  link_.drain();
  lock.lock();
}

Result<void> Scheduler::run_batch(const RunnableBatch& batch) {
  if (waits_for_earlier(batch.kind)) {
    for (const Piece& piece : batch.pieces) {
      if (batch.kind == CallKind::kJoin && !piece.call->outs.empty())
        *static_cast<int*>(piece.call->outs.front()) = static_cast<int>(piece.begin);
      piece_done(piece);
    }
    return {};
  }
  const int slices = group_.layout.slices();
  std::vector<Part> parts;
  std::vector<size_t> index;  // of the piece behind each part
  parts.reserve(batch.pieces.size());
  index.reserve(batch.pieces.size());
  for (size_t i = 0; i < batch.pieces.size(); ++i) {
    const Piece& piece = batch.pieces[i];
    Call& call = *piece.call;
    if (piece.begin == piece.end) {
      piece_done(piece);
      continue;
    }
    const void* in = call.ins.front();
    if (call.ins.size() > 1) {
      if (call.local_sum.empty()) {
        call.local_sum.resize(call.count * size_of(call.signature.dtype));
        add_all(call.signature.dtype, call.local_sum.data(), call.ins, call.count);
      }
      in = call.local_sum.data();
    }
    index.push_back(i);
    const size_t slice = slices > 0 ? slice_length(call.count, slices) : 0;
    parts.push_back(
        {in, call.outs.front(), call.signature.dtype, call.count, piece.begin, piece.end, slice});
  }
  if (parts.empty()) return {};
  const PartDone done = [&](size_t i) { piece_done(batch.pieces[index[i]]); };
  // A copy: the first call may be gone while the others still run.
  const Signature common = batch.pieces[index.front()].call->signature;
  if (batch.kind == CallKind::kBroadcast) return collective_->broadcast(parts, common.root, done);
  return collective_->allreduce(parts, common.reduce, done);
}

void Scheduler::piece_done(const Piece& piece) {
  Call* call = piece.call;
  std::unique_lock lock(mutex_);
  if (--call->open_pieces > 0 || !call->last_piece) return;
  lock.unlock();
  // The call is this thread's alone now: every piece has run.
  const size_t bytes = call->count * size_of(call->signature.dtype);
  for (size_t i = 1; i < call->outs.size(); ++i)
    if (bytes > 0 && call->outs[i] != call->outs[0])
      std::memcpy(call->outs[i], call->outs[0], bytes);
  lock.lock();
  KeyEntry& e = *call->entry;
  const auto found = e.slots.find(call->number);
  std::unique_ptr<Call> owned = std::move(found->second.call);
  end_call(e, owned->number);
  e.slots.erase(owned->number);
  const bool send = !outbox_.empty();
  lock.unlock();
  if (send) flush();
  complete(std::move(owned), {});
}

// A data-plane error is evidence, not a verdict: the first error often names a neighbour that was
// itself aborting. The coordinator, which sees all ranks, gets a moment to say who was first.
void Scheduler::settle(uint64_t batch, const Error& error) {
  std::unique_lock lock(mutex_);
  if (!failure_) {
    outbox_.emplace_back(Evidence{batch, error.rank(), error.message()});
    lock.unlock();
    flush();
    lock.lock();
    changed_.wait_for(lock, options_.verdict_wait, [this] { return failure_.has_value(); });
  }
  lock.unlock();
  fail_group(error);
}

}  // namespace pushpull
