#include "core/scheduler.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/scheduler_state.h"

namespace pushpull {

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
