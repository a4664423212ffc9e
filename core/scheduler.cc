#include "core/scheduler.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <shared_mutex>
#include <utility>

#include <fmt/format.h>

#include "core/net/signals.h"
#include "core/reduce.h"

namespace pushpull {

// A reserved call. It leaves the table when it has ended, its caller has come for it, and the order
// of announcements has passed it.
struct Slot {
  uint64_t sequence = 0;  // order of reservation over all keys; 0: not reserved yet (it failed before)
  std::unique_ptr<Call> call;
  std::optional<Error> ended;
  bool claimed = false;  // submitted or withdrawn
};

struct KeyEntry {
  CallKind kind;
  std::string key;
  uint64_t next_number = 1;
  uint64_t next_announce = 1;
  std::map<uint64_t, Slot> slots;
  std::vector<std::pair<Signature, uint32_t>> definitions;
};

namespace {

Error closed_error() { return Error(ErrorCode::kAborted, "the store is closed"); }

void complete(std::unique_ptr<Call> call, const Result<void>& result) {
  call->work->complete(result);
}

// A driver looks on for this long without news before it sleeps: longer than a rank's wake-up.
constexpr auto kDrive = std::chrono::microseconds(60);
// Longer than one look takes unless something else wants the processor, which others need more.
constexpr auto kPreempted = std::chrono::microseconds(20);
// After a vain look that many waits, doubled each time, only sleep.
constexpr int kMaxSkipped = 15;
constexpr auto kLinger = std::chrono::microseconds(200);
// While a batch of more than this runs, the loop's thread answers those who wake it.
constexpr size_t kWatchedBytes = 64u << 10;

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// Outlives the scheduler where somebody keeps a work.
class Scheduler::Driver final : public WorkDriver {
 public:
  explicit Driver(Scheduler& scheduler) : scheduler_(&scheduler) {}

  void drive(const WorkState& work, Deadline deadline) override {
    const std::shared_lock lock(mutex_);
    if (scheduler_ != nullptr) scheduler_->drive(work, deadline);
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

KeyEntry& Scheduler::entry(CallKind kind, std::string_view key) {
  auto& table = entries_[static_cast<size_t>(kind)];
  auto& found = table[std::string(key)];
  if (!found) {
    found = std::make_unique<KeyEntry>();
    found->kind = kind;
    found->key = key;
  }
  return *found;
}

uint64_t Scheduler::reserve_locked(KeyEntry& e) {
  const uint64_t number = e.next_number++;
  Slot& slot = e.slots[number];
  slot.sequence = ++sequence_;
  if (waits_for_earlier(e.kind) && !slot.ended) barriers_.push_back({sequence_, open_calls_});
  if (!slot.ended) ++open_calls_;
  return number;
}

uint64_t Scheduler::reserve(CallKind kind, std::string_view key) {
  std::lock_guard lock(mutex_);
  return reserve_locked(entry(kind, key));
}

void Scheduler::submit(std::unique_ptr<Call> call) {
  std::optional<Error> error;
  {
    std::lock_guard lock(mutex_);
    KeyEntry& e = entry(call->kind, call->key);
    if (failure_ || leaving_) {
      error = failure_ ? *failure_ : closed_error();
    } else {
      if (call->number == 0) call->number = reserve_locked(e);
      const auto found = e.slots.find(call->number);
      if (found == e.slots.end() || found->second.claimed) {
        error = Error(ErrorCode::kInvalidArgument,
                      fmt::format("call {} of key '{}' was made or withdrawn before, or never reserved",
                                  call->number, call->key));
      } else {
        Slot& slot = found->second;
        slot.claimed = true;
        if (!slot.ended && made_after_join(e, call->number)) {
          constexpr char kReason[] = "it was made after join() and before all ranks had joined";
          slot.ended = Error(ErrorCode::kInvalidArgument,
                             fmt::format("{} of key '{}', call {}: {}", to_string(e.kind), e.key,
                                         call->number, kReason));
          outbox_.emplace_back(Withdraw{e.kind, e.key, call->number, kReason});
          end_call(e, call->number);
        } else if (e.kind == CallKind::kJoin) {
          joining_ = slot.sequence;
        }
        if (slot.ended) {
          error = slot.ended;
          if (found->first < e.next_announce) e.slots.erase(found);
        } else {
          call->entry = &e;
          slot.call = std::move(call);
        }
        announce_ready(e);
      }
    }
  }
  flush();
  if (error) complete(std::move(call), fail(*error));
}

void Scheduler::withdraw(CallKind kind, std::string_view key, uint64_t number,
                         std::string_view reason) {
  {
    std::lock_guard lock(mutex_);
    if (failure_ || leaving_) return;
    KeyEntry& e = entry(kind, key);
    const auto found = e.slots.find(number);
    if (found == e.slots.end() || found->second.claimed) return;
    found->second.claimed = true;
    if (!found->second.ended) {
      found->second.ended = Error(ErrorCode::kAborted, std::string(reason));
      outbox_.emplace_back(Withdraw{kind, std::string(key), number, std::string(reason)});
      end_call(e, number);
    }
    announce_ready(e);
  }
  flush();
}

bool Scheduler::made_after_join(const KeyEntry& e, uint64_t number) const {
  const auto found = e.slots.find(number);
  return joining_ != 0 && found->second.sequence > joining_;
}

// Announces, in the order of their numbers, the calls of this key that are there.
void Scheduler::announce_ready(KeyEntry& e) {
  for (;;) {
    const auto found = e.slots.find(e.next_announce);
    if (found == e.slots.end()) return;
    Slot& slot = found->second;
    if (slot.ended) {
      ++e.next_announce;
      if (slot.claimed) e.slots.erase(found);
      continue;
    }
    if (!slot.call) return;
    if (waits_for_earlier(e.kind)) {
      const auto waiting =
          std::find_if(barriers_.begin(), barriers_.end(),
                       [&](const Waiting& w) { return w.sequence == slot.sequence; });
      if (waiting != barriers_.end() && waiting->earlier > 0) return;
    }
    const Announcement a{definition(e, slot.call->signature), e.next_announce++, slot.call->priority};
    if (outbox_.empty() || !std::holds_alternative<Announce>(outbox_.back()))
      outbox_.emplace_back(Announce{});
    std::get<Announce>(outbox_.back()).calls.push_back(a);
  }
}

uint32_t Scheduler::definition(KeyEntry& e, const Signature& signature) {
  for (const auto& [known, id] : e.definitions)
    if (known == signature) return id;
  const uint32_t id = definitions_++;
  e.definitions.emplace_back(signature, id);
  outbox_.emplace_back(Define{id, e.kind, e.key, signature});
  return id;
}

// Under the lock: the books of a call that has ended.
void Scheduler::end_call(KeyEntry& e, uint64_t number) {
  const auto found = e.slots.find(number);
  if (found == e.slots.end() || found->second.sequence == 0) return;
  const uint64_t sequence = found->second.sequence;
  --open_calls_;
  if (sequence == joining_) joining_ = 0;
  if (waits_for_earlier(e.kind))
    std::erase_if(barriers_, [&](const Waiting& w) { return w.sequence == sequence; });
  bool released = false;
  for (Waiting& w : barriers_)
    if (w.sequence > sequence && --w.earlier == 0) released = true;
  if (released)
    for (const CallKind kind : {CallKind::kBarrier, CallKind::kJoin})
      for (auto& [key, waiting] : entries_[static_cast<size_t>(kind)]) announce_ready(*waiting);
  if (open_calls_ == 0) changed_.notify_all();
}

// One sender at a time keeps the order; whoever adds meanwhile has its messages sent along.
void Scheduler::flush() {
  std::unique_lock lock(mutex_);
  if (sending_) return;
  sending_ = true;
  std::vector<FromRank> messages;
  while (!outbox_.empty()) {
    messages.swap(outbox_);
    lock.unlock();
    link_.send(messages);
    messages.clear();
    lock.lock();
  }
  sending_ = false;
}

void Scheduler::receive(const ToRank& message) {
  if (const auto* batch = std::get_if<Batch>(&message)) return on_batch(*batch);
  if (const auto* name = std::get_if<Name>(&message)) {
    std::lock_guard lock(mutex_);
    named_[name->id] = &entry(name->kind, name->key);
    return;
  }
  if (const auto* failed = std::get_if<Failed>(&message)) return on_failed(*failed);
  if (const auto* stand_in = std::get_if<StandIn>(&message)) return on_stand_in(*stand_in);
  if (const auto* warning = std::get_if<Warning>(&message)) return logger_->warning(warning->message);
  if (const auto* aborted = std::get_if<Aborted>(&message)) {
    Error error(aborted->code, aborted->message);
    const int culprit = aborted->culprit;
    error.at_rank(culprit, culprit >= 0 && culprit < group_.size()
                               ? group_.members[static_cast<size_t>(culprit)].host
                               : std::string());
    if (aborted->restartable) error.make_restartable();
    return fail_group(error);
  }
  if (const auto* explanation = std::get_if<Explanation>(&message)) {
    std::unique_lock lock(mutex_);
    const auto explained = explained_;
    lock.unlock();
    if (explained) explained(explanation->text);
    return;
  }
  if (std::holds_alternative<Farewell>(message)) {
    std::lock_guard lock(mutex_);
    farewell_ = true;
    changed_.notify_all();
  }
}

void Scheduler::on_batch(const Batch& batch) {
  std::string problem;
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    RunnableBatch runnable{batch.number, batch.kind, {}, 0};
    runnable.pieces.reserve(batch.entries.size());
    for (const BatchEntry& piece : batch.entries) {
      const auto named = named_.find(piece.id);
      Slot* slot = nullptr;
      if (named != named_.end()) {
        const auto found = named->second->slots.find(piece.call);
        if (found != named->second->slots.end()) slot = &found->second;
      }
      if (!slot || !slot->call) {
        problem = fmt::format("batch {} names call {} of a key that this rank has not announced",
                              batch.number, piece.call);
        break;
      }
      slot->call->batched = true;
      slot->call->last_piece |= piece.last;
      ++slot->call->open_pieces;
      runnable.pieces.push_back({slot->call.get(), piece.begin, piece.end, piece.last});
      runnable.bytes += slot->call->count * size_of(slot->call->signature.dtype);
    }
    if (problem.empty()) {
      batches_.push_back(std::move(runnable));
      note_runnable();
      wake = !busy_ && drivers_ == 0;
    }
  }
  if (wake) runnable_.notify_one();
  if (!problem.empty()) fail_group(Error(ErrorCode::kAborted, problem));
}

void Scheduler::on_failed(const Failed& failed) {
  Error error(failed.code, failed.message);
  std::unique_ptr<Call> call;
  {
    std::lock_guard lock(mutex_);
    const auto named = named_.find(failed.id);
    if (named == named_.end()) return;
    KeyEntry& e = *named->second;
    error.at_key(e.key).at_rank(failed.culprit);
    const bool passed = failed.call < e.next_announce;
    const auto found = e.slots.find(failed.call);
    if (found == e.slots.end()) {
      if (passed) return;
      // A call that this rank never came to: it counts as made here too, so that numbers stay aligned.
      Slot& slot = e.slots[failed.call];
      slot.ended = error;
      slot.claimed = true;
      e.next_number = std::max(e.next_number, failed.call + 1);
    } else {
      Slot& slot = found->second;
      if (slot.ended) return;
      call = std::move(slot.call);
      end_call(e, failed.call);
      slot.ended = error;
      if (passed && slot.claimed) e.slots.erase(failed.call);
    }
    announce_ready(e);
  }
  flush();
  logger_->error(error.message());
  if (call) complete(std::move(call), fail(error));
}

// This rank has joined and the others go on: zeros take the place of the call that it did not make.
void Scheduler::on_stand_in(const StandIn& stand_in) {
  auto call = std::make_unique<Call>();
  call->number = stand_in.call;
  call->signature = stand_in.signature;
  call->work = std::make_shared<WorkState>();
  call->count = 1;
  for (const int64_t d : stand_in.signature.shape) call->count *= static_cast<size_t>(d);
  call->local_sum.resize(call->count * size_of(stand_in.signature.dtype));
  call->ins.push_back(call->local_sum.data());
  call->outs.push_back(call->local_sum.data());

  std::lock_guard lock(mutex_);
  const auto named = named_.find(stand_in.id);
  if (failure_ || named == named_.end()) return;
  KeyEntry& e = *named->second;
  call->kind = e.kind;
  call->key = e.key;
  call->entry = &e;
  Slot& slot = e.slots[stand_in.call];
  // Reserved after the join, and counted then.
  const bool counted = slot.sequence != 0 && !slot.ended;
  if (!counted) ++open_calls_;
  slot = Slot{counted ? slot.sequence : ++sequence_, std::move(call), std::nullopt, true};
  e.next_number = std::max(e.next_number, stand_in.call + 1);
  e.next_announce = std::max(e.next_announce, stand_in.call + 1);
}

void Scheduler::coordinator_lost(const std::string& why) {
  Error error(ErrorCode::kPeerLost,
              fmt::format("{}, which coordinates the group, was lost: {}", group_.describe(0), why));
  fail_group(error.at_rank(0, group_.members.empty() ? std::string() : group_.members[0].host));
}

std::vector<std::unique_ptr<Call>> Scheduler::take_calls(bool batched) {
  std::vector<std::unique_ptr<Call>> calls;
  for (auto& table : entries_)
    for (auto& [key, e] : table)
      for (auto& [number, slot] : e->slots)
        if (slot.call && slot.call->batched == batched) calls.push_back(std::move(slot.call));
  return calls;
}

void Scheduler::fail_group(const Error& error) { end_group(error, false); }

void Scheduler::end_group(const Error& error, bool orderly) {
  std::vector<std::unique_ptr<Call>> calls;
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = error;
    calls = take_calls(false);
    changed_.notify_all();
    runnable_.notify_all();
  }
  if (!orderly) collective_->abort(error);
  for (auto& call : calls) complete(std::move(call), fail(error));
}

std::optional<Error> Scheduler::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void Scheduler::leave() {
  {
    std::unique_lock lock(mutex_);
    if (failure_ || leaving_) return;
    const auto limit = deadline_in(options_.leave_timeout);
    changed_.wait_until(lock, limit, [this] { return failure_ || open_calls_ == 0; });
    leaving_ = true;
    if (failure_) return;
    reported_ = finished_;
    outbox_.emplace_back(Progress{finished_});
    outbox_.emplace_back(Goodbye{});
  }
  flush();
  bool orderly = false;
  {
    std::unique_lock lock(mutex_);
    const auto limit = deadline_in(options_.leave_timeout);
    while (!failure_ && !farewell_ && Clock::now() < limit) changed_.wait_until(lock, limit);
    orderly = farewell_ && batches_.empty();
  }
  end_group(closed_error(), orderly);
}

void Scheduler::report_progress() {
  bool unseen = false;
  {
    std::lock_guard lock(mutex_);
    unseen = watching_ && busy_;
  }
  // Who runs a batch does not look, and what would end the batch may have come.
  if (unseen) link_.drain();
  {
    std::lock_guard lock(mutex_);
    if (failure_ || reported_ == finished_) return;
    reported_ = finished_;
    outbox_.emplace_back(Progress{finished_});
  }
  flush();
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
      relax();
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
    if (bytes > 0 && call->outs[i] != call->outs[0]) std::memcpy(call->outs[i], call->outs[0], bytes);
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

void Scheduler::when_explained(std::function<void(const std::string&)> f) {
  std::lock_guard lock(mutex_);
  explained_ = std::move(f);
}

std::string Scheduler::dump() const {
  std::lock_guard lock(mutex_);
  std::string text = fmt::format(
      "rank {} of {}: batch {} running, {} finished, {} queued, {} calls open\n", group_.rank,
      group_.size(), running_, finished_, batches_.size(), open_calls_);
  if (failure_) text += fmt::format("  the group has failed: {}\n", failure_->message());
  for (const auto& table : entries_) {
    for (const auto& [key, e] : table) {
      for (const auto& [number, slot] : e->slots) {
        if (slot.ended) continue;
        const char* state = !slot.call                   ? "reserved, not made yet"
                            : slot.call->batched         ? "in a batch"
                            : number < e->next_announce  ? "announced, waiting for other ranks"
                                                         : "waiting for earlier calls";
        text += fmt::format("  {} of key '{}', call {}: {}\n", to_string(e->kind), key, number, state);
      }
    }
  }
  return text;
}

}  // namespace pushpull
