#include "tests/simulator/referee.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include "core/collective.h"

namespace pushpull::simulator {

Range range_of(CallKind kind, const Signature& signature, int size) {
  if (waits_for_earlier(kind)) return {};
  uint64_t elements = 1;
  for (const int64_t d : signature.shape) elements *= static_cast<uint64_t>(d);
  const uint64_t bytes = size_of(signature.dtype);
  if (kind == CallKind::kBroadcast) return {elements, bytes, elements * bytes};
  return {slice_length(elements, size), bytes * static_cast<uint64_t>(size), elements * bytes};
}

bool Referee::Call::complete() const {
  return std::all_of(by_rank.begin(), by_rank.end(), [](const auto& s) { return s.has_value(); });
}

bool Referee::Call::alike() const {
  return std::all_of(by_rank.begin(), by_rank.end(),
                     [&](const auto& s) { return s == by_rank.front(); });
}

Referee::Referee(const Scenario& scenario, Complain complain)
    : scenario_(scenario),
      complain_(std::move(complain)),
      finished_(static_cast<size_t>(scenario.size)) {}

Referee::Call& Referee::call(const KindAndKey& series, uint64_t number) {
  Call& c = calls_[series][number];
  c.by_rank.resize(static_cast<size_t>(scenario_.size));
  return c;
}

void Referee::on_receive(int rank, const FromRank& message, Clock::time_point now) {
  if (const auto* define = std::get_if<Define>(&message))
    defined_.try_emplace({rank, define->id}, *define);
  if (std::holds_alternative<Goodbye>(message)) leaving_.insert(rank);
  if (const auto* progress = std::get_if<Progress>(&message))
    finished_[static_cast<size_t>(rank)] = progress->finished;
  if (const auto* withdraw = std::get_if<Withdraw>(&message))
    call({withdraw->kind, withdraw->key}, withdraw->call).withdrawn.insert(rank);
  const auto* announce = std::get_if<Announce>(&message);
  if (announce == nullptr || aborted_) return;
  for (const Announcement& a : announce->calls) {
    const auto defined = defined_.find({rank, a.id});
    if (defined == defined_.end()) return;  // nonsense: the coordinator has to notice
    const Define& d = defined->second;
    Call& c = call({d.kind, d.key}, a.call);
    if (c.ended) continue;
    if (!c.any) {
      c.first = now;
      c.opened = order_++;
    }
    c.any = true;
    c.by_rank[static_cast<size_t>(rank)] = d.signature;
    if (rank == 0) c.priority = a.priority;
    if (d.kind == CallKind::kJoin) on_joined(rank, c);
    on_announced({d.kind, d.key}, c);
  }
}

void Referee::on_announced(const KindAndKey& series, Call& c) {
  const auto present =
      std::find_if(c.by_rank.begin(), c.by_rank.end(), [](const auto& s) { return s.has_value(); });
  bool only_away_missing = true;
  for (int r = 0; r < scenario_.size; ++r)
    only_away_missing = only_away_missing && (c.by_rank[static_cast<size_t>(r)] || away_.count(r));
  if (series.first != CallKind::kJoin && only_away_missing)
    for (const int r : away_)
      if (!c.by_rank[static_cast<size_t>(r)]) c.by_rank[static_cast<size_t>(r)] = *present;
  if (!c.complete() || !c.alike() || c.ready) return;
  if (series.first == CallKind::kJoin) away_.clear();
  c.ready = order_++;
}

void Referee::on_joined(int rank, Call& join) {
  away_.insert(rank);
  join.begin = static_cast<uint64_t>(rank);  // the last one stays
  if (away_.size() == static_cast<size_t>(scenario_.size)) return;
  std::map<uint64_t, std::pair<KindAndKey, Call*>> open;
  for (auto& [series, calls] : calls_)
    for (auto& [number, c] : calls)
      if (c.any && !c.ended && !c.ready && &c != &join) open[c.opened] = {series, &c};
  for (auto& [opened, c] : open) on_announced(c.first, *c.second);
}

void Referee::on_disconnected(int rank) {
  if (leaving_.count(rank) != 0) farewelled_.insert(rank);
}

void Referee::on_batch_started(uint64_t number) { started_ = number; }

void Referee::on_send(int rank, const ToRank& message, Clock::time_point now) {
  if (aborted_) complain_("something was sent after the verdict");
  if (const auto* name = std::get_if<Name>(&message)) {
    const bool fresh = names_.emplace(name->id, KindAndKey{name->kind, name->key}).second &&
                       numbers_.emplace(KindAndKey{name->kind, name->key}, name->id).second;
    if (!fresh) complain_(fmt::format("key {} was named twice", name->key));
  }
  if (const auto* batch = std::get_if<Batch>(&message)) check_batch(*batch);
  if (const auto* failed = std::get_if<Failed>(&message)) {
    // Told to everybody at once, or rank by rank: judged at the first.
    if (rank < 0 || told_.emplace(failed->id, failed->call).second) check_failed(*failed, now);
  }
  if (const auto* aborted = std::get_if<Aborted>(&message)) aborted_ = *aborted;
  if (std::holds_alternative<Farewell>(message) && !may_leave(rank))
    complain_(fmt::format("rank {} got its farewell too early", rank));
}

bool Referee::may_leave(int rank) {
  for (int r = 0; r < scenario_.size; ++r)
    if (farewelled_.count(r) == 0 && finished_[static_cast<size_t>(r)] < cut_) return false;
  for (const auto& [series, calls] : calls_)
    for (const auto& [number, c] : calls)
      if (!c.ended && c.by_rank[static_cast<size_t>(rank)]) return false;
  farewelled_.insert(rank);
  return leaving_.count(rank) != 0;
}

// ---- batches ----

// Ready calls, the most urgent first; of one key only the one that was ready first.
std::vector<Referee::ReadyCall> Referee::ready_calls() {
  std::vector<ReadyCall> found;
  for (auto& [series, calls] : calls_) {
    std::optional<ReadyCall> first;
    for (auto& [number, c] : calls) {
      if (!c.ready || c.ended) continue;
      if (!first || *c.ready < *first->call->ready) first = ReadyCall{series, number, &c};
    }
    if (first) found.push_back(*first);
  }
  std::sort(found.begin(), found.end(), [](const ReadyCall& a, const ReadyCall& b) {
    return std::tuple(-a.call->priority, *a.call->ready) <
           std::tuple(-b.call->priority, *b.call->ready);
  });
  return found;
}

std::vector<BatchEntry> Referee::expected_batch() {
  std::vector<BatchEntry> entries;
  const auto ready = ready_calls();
  if (ready.empty()) return entries;
  const CallKind kind = ready.front().series.first;
  const Signature& lead = *ready.front().call->by_rank[0];
  uint64_t room = scenario_.options.fusion_bytes;
  for (const auto& [series, number, c] : ready) {
    const Signature& s = *c->by_rank[0];
    if (series.first != kind) continue;
    if (kind == CallKind::kBroadcast && s.root != lead.root) continue;
    if (kind == CallKind::kPushPull && s.reduce != lead.reduce) continue;
    const Range range = range_of(kind, s, scenario_.size);
    const uint64_t id = numbers_.count(series) != 0 ? numbers_[series] : ~0u;
    const uint64_t rest = std::min((range.end - c->begin) * range.width, range.bytes);
    BatchEntry entry{static_cast<uint32_t>(id), number, c->begin, range.end, true};
    if (rest > room) {
      if (!entries.empty()) break;
      const uint64_t fitting = std::max<uint64_t>(16, room / range.width / 16 * 16);
      entry.end = std::min(range.end, c->begin + fitting);
      entry.last = entry.end == range.end;
      room = 0;  // only empty tensors fit behind the last piece
    } else {
      room -= rest;
    }
    entries.push_back(entry);
    if (!entry.last || waits_for_earlier(kind)) break;
  }
  return entries;
}

void Referee::check_batch(const Batch& batch) {
  if (batch.number != ++cut_) complain_(fmt::format("batch {} follows {}", batch.number, cut_ - 1));
  if (cut_ > started_ + 1)
    complain_(fmt::format("batch {} was cut while rank 0 was in {}", cut_, started_));
  const auto expected = expected_batch();
  bool same = expected.size() == batch.entries.size();
  for (size_t i = 0; same && i < expected.size(); ++i) {
    const BatchEntry& a = expected[i];
    const BatchEntry& b = batch.entries[i];
    same = std::tie(a.id, a.call, a.begin, a.end, a.last) ==
           std::tie(b.id, b.call, b.begin, b.end, b.last);
  }
  if (!same) {
    std::string text = fmt::format("batch {} is not what was most urgent:", batch.number);
    for (const auto& [what, entries] : {std::pair("expected", expected), {"cut", batch.entries}})
      for (const BatchEntry& e : entries)
        text += fmt::format(" {} {}#{} {}-{}{}", what, e.id, e.call, e.begin, e.end,
                            e.last ? "." : "…");
    complain_(text);
  }
  for (const BatchEntry& entry : batch.entries) {
    const auto name = names_.find(entry.id);
    if (name == names_.end() || name->second.first != batch.kind) {
      complain_(fmt::format("batch {} uses a number without a name", batch.number));
      continue;
    }
    Call& c = call(name->second, entry.call);
    c.begin = entry.end;
    c.ended = c.ended || entry.last;
    done_ += entry.last;
  }
}

// ---- failures ----

bool Referee::faces_another_kind(const KindAndKey& series, const Call& c) {
  const CallKind other =
      series.first == CallKind::kPushPull ? CallKind::kBroadcast : CallKind::kPushPull;
  for (const auto& [number, twin] : calls_[{other, series.second}]) {
    bool covered = true;
    for (size_t r = 0; r < c.by_rank.size() && covered; ++r)
      covered = c.by_rank[r] || (r < twin.by_rank.size() && twin.by_rank[r]);
    if (covered) return true;
  }
  return false;
}

void Referee::check_failed(const Failed& failed, Clock::time_point now) {
  const auto name = names_.find(failed.id);
  if (name == names_.end()) return complain_("a failure uses a number without a name");
  Call& c = call(name->second, failed.call);
  const std::string what =
      fmt::format("{} call {} of key {} failed ({})", to_string(name->second.first), failed.call,
                  name->second.second, failed.message);
  if (c.ended) complain_(what + " after its end");
  if (c.ready) complain_(what + " although it was ready");
  bool just = false;
  switch (failed.code) {
    case ErrorCode::kMismatch:
      just = (c.complete() && !c.alike()) || faces_another_kind(name->second, c);
      break;
    case ErrorCode::kTimeout:
      just = !c.complete() && now - c.first >= scenario_.options.stall_timeout;
      // Who has left is not waited for.
      for (const int r : leaving_) just = just && c.by_rank[static_cast<size_t>(r)].has_value();
      break;
    case ErrorCode::kPeerLost:
      just = leaving_.count(failed.culprit) != 0;
      break;
    case ErrorCode::kAborted:
      just = c.withdrawn.count(failed.culprit) != 0;
      break;
    default:
      break;
  }
  if (!just) complain_(what + " without a reason");
  c.ended = true;
  ++failed_;
}

}  // namespace pushpull::simulator
