#include "tests/simulator/client.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/simulator/world.h"

namespace pushpull::simulator {
namespace {

constexpr size_t kMaxStepsAtOnce = 3;

std::string to_text(const Batch& batch) {
  std::string text = fmt::format("{} {}:", batch.number, static_cast<int>(batch.kind));
  for (const BatchEntry& e : batch.entries)
    text += fmt::format(" {}#{}[{},{}{}", e.id, e.call, e.begin, e.end, e.last ? "]" : ")");
  return text;
}

}  // namespace

Client::Client(World& world, int rank) : world_(world), rank_(rank) {}

bool Client::Step::all_made() const {
  return std::all_of(ops.begin(), ops.end(), [](const auto& op) { return op->made; });
}
bool Client::Step::all_ended() const {
  return std::all_of(ops.begin(), ops.end(), [](const auto& op) { return op->ended; });
}

void Client::on_message(const ToRank& message) {
  if (over()) return;
  std::visit([&](const auto& m) { on(m); }, message);
}

// ---- life ----

void Client::on(const Welcome&) {
  const Scenario& s = world_.scenario();
  beat();
  world_.after(world_.random_delay(s.max_compute_us), [this] {
    if (!over()) world_.send_to_coordinator(rank_, Connected{});
  });
  for (const Injured& i : s.injuries)
    if (i.rank == rank_ && (i.injury == Injury::kCut || i.injury == Injury::kSilence))
      world_.after(i.when, [this, i] { injure(i.injury); });
}

void Client::on(const Ready&) {
  for (const Injured& i : world_.scenario().injuries)
    if (i.rank == rank_ && i.injury != Injury::kCut && i.injury != Injury::kSilence)
      world_.after(i.when, [this, i] { injure(i.injury); });
  go_on();
}

void Client::beat() {
  if (over()) return;
  world_.send_to_coordinator(rank_, Heartbeat{});
  world_.after(world_.scenario().options.heartbeat_timeout / 4, [this] { beat(); });
}

void Client::injure(Injury injury) {
  const bool deadly = injury == Injury::kCut || injury == Injury::kSilence;
  if (over() || (leaving_ && !deadly)) return;
  injured_ = true;
  leaving_when_injured_ = leaving_;
  switch (injury) {
    case Injury::kCut:
      dead_ = true;
      world_.close_connection(rank_, true);
      world_.leave_data_plane(rank_, true);
      break;
    case Injury::kSilence:
      dead_ = true;
      world_.leave_data_plane(rank_, false);
      break;
    case Injury::kGiveUp:
      world_.send_to_coordinator(rank_, GiveUp{"tired"});
      break;
    case Injury::kGarbage:
      send_garbage();
      break;
    case Injury::kExchange:
      stopped_exchanging_ = true;
      world_.send_to_coordinator(rank_, Evidence{.batch = 0, .suspect = 0, .message = "broken"});
      break;
  }
}

void Client::send_garbage() {
  switch (world_.random().below(4)) {
    case 0:
      world_.send_to_coordinator(rank_, Announce{{{777, 1, 0}}});
      break;
    case 1:
      world_.send_to_coordinator(rank_, Progress{1u << 30});
      break;
    case 2:
      world_.send_to_coordinator(
          rank_, Withdraw{.kind = CallKind::kBarrier, .key = "", .call = 0, .reason = ""});
      break;
    default: {
      const Define define{.id = 900, .kind = CallKind::kPushPull, .key = "g", .signature = {}};
      world_.send_to_coordinator(rank_, define);
      world_.send_to_coordinator(rank_, define);
    }
  }
}

void Client::notice(int suspect) {
  if (quiet() || stopped_exchanging_ || !running_) return;
  stopped_exchanging_ = true;
  world_.send_to_coordinator(
      rank_, Evidence{.batch = running_->number, .suspect = suspect, .message = "reset"});
}

void Client::on(const Aborted& aborted) {
  aborted_ = aborted;
  world_.close_connection(rank_, false);
}

void Client::on(const Farewell&) {
  if (!leaving_) world_.complain(fmt::format("rank {} got a farewell unasked", rank_));
  farewelled_ = true;
  world_.after(world_.random_delay(world_.scenario().max_compute_us), [this] {
    if (over()) return;
    closed_ = true;
    world_.close_connection(rank_, false);
  });
}

// ---- the program ----

// Whether this rank is to sleep before its next step.
bool Client::comes_late() const {
  const Scenario& s = world_.scenario();
  const size_t end = ops_begun_ + s.steps[steps_.size()].size();
  return std::any_of(s.twists.begin(), s.twists.end(), [&](const Twisted& t) {
    return t.twist == Twist::kLate && t.rank == rank_ && t.op >= ops_begun_ && t.op < end;
  });
}

void Client::go_on() {
  if (quiet() || sleeping_) return;
  const Scenario& s = world_.scenario();
  const bool leaver = s.leaver && s.leaver->rank == rank_;
  while (!quiet()) {
    if (!steps_.empty() && !steps_.back().all_made()) return;
    const bool last_op = leaver && ops_begun_ >= s.leaver->ops;
    if (last_op || steps_.size() == s.steps.size()) {
      if (!everything_ended() && !(leaver && !s.leaver->waits_for_ops)) return;
      left_early_ = last_op;
      say_goodbye();
      return;
    }
    if (s.synchronous && !steps_.empty() && !steps_.back().all_ended()) return;
    if (must_wait_for_join()) return;
    size_t open = 0;
    for (const Step& step : steps_) open += !step.all_ended();
    if (open >= kMaxStepsAtOnce) return;
    if (comes_late() && !std::exchange(slept_, true)) {
      sleeping_ = true;
      world_.after(s.options.stall_timeout + std::chrono::seconds(5), [this] {
        sleeping_ = false;
        go_on();
      });
      return;
    }
    slept_ = false;
    begin_step();
  }
}

// It has no data for this one.
bool Client::skips_step() const {
  const auto& epoch = world_.scenario().epoch;
  const size_t next = steps_.size();
  return epoch && next < epoch->join && next >= epoch->has_data[static_cast<size_t>(rank_)];
}

// A join comes when all before has ended, and nothing comes before it has.
bool Client::must_wait_for_join() const {
  const auto& epoch = world_.scenario().epoch;
  if (!epoch) return false;
  const size_t next = steps_.size();
  return (next == epoch->join && !everything_ended()) ||
         (next == epoch->join + 1 && !steps_.back().all_ended());
}

void Client::begin_step() {
  const Scenario& s = world_.scenario();
  const auto& program = s.steps[steps_.size()];
  if (skips_step()) {
    steps_.emplace_back();
    ops_begun_ += program.size();
    return;
  }
  Step& step = steps_.emplace_back();
  for (const Op& op : program) {
    if (s.leaver && s.leaver->rank == rank_ && ops_begun_ >= s.leaver->ops) break;
    auto live = std::make_unique<LiveOp>();
    live->op = op;
    for (const Twisted& t : s.twists)
      if (t.rank == rank_ && t.op == ops_begun_) live->twist = t.twist;
    if (live->twist == Twist::kOtherKind && op.kind == CallKind::kBarrier) live->twist.reset();
    if (live->twist == Twist::kOtherKind) {
      live->op.kind = op.kind == CallKind::kPushPull ? CallKind::kBroadcast : CallKind::kPushPull;
      live->op.signature.root = live->op.kind == CallKind::kBroadcast ? 0 : -1;
    }
    if (live->twist == Twist::kMismatch) live->op.signature.shape.push_back(1);
    if (s.reserve_early) live->number = ++made_[{live->op.kind, op.key}];
    step.ops.push_back(std::move(live));
    ++ops_begun_;
  }
  std::vector<LiveOp*> order;
  Duration head_start{};
  for (const auto& op : step.ops) {
    order.push_back(op.get());
    if (op->twist != Twist::kSkip) continue;
    // It must be seen to go on after the others came to the call that it skips.
    head_start = std::chrono::milliseconds(500);
    if (step.ops.size() == 1) op->twist.reset();
  }
  world_.random().shuffle(order);
  for (LiveOp* op : order) {
    // Any order among keys, program order within one.
    auto& last = last_make_[{op->op.kind, op->op.key}];
    last = std::max(last, world_.now() + head_start + world_.random_delay(s.max_compute_us));
    world_.after(last - world_.now(), [this, op] { make(*op); });
  }
}

void Client::make(LiveOp& op) {
  if (quiet()) return;
  const KindAndKey series{op.op.kind, op.op.key};
  op.made = true;
  uint64_t& made = made_[series];
  if (op.number == 0) op.number = op.twist == Twist::kSkip ? made + 1 : ++made;
  const auto ended = ends_.find({series, op.number});
  if (ended != ends_.end()) {
    op.ended = true;
    op.failed = true;
    // A rank may not know yet, or not care: what comes late must do no harm.
    if (op.twist != Twist::kSkip && world_.random().chance(50)) announce(op);
  } else {
    live_[{series, op.number}] = &op;
    if (op.twist == Twist::kWithdraw) {
      world_.send_to_coordinator(rank_, Withdraw{.kind = op.op.kind,
                                                 .key = op.op.key,
                                                 .call = op.number,
                                                 .reason = "its input failed"});
    } else if (op.twist != Twist::kSkip) {
      announce(op);
    }
  }
  go_on();
}

uint32_t Client::define(const Op& op) {
  const std::pair<KindAndKey, Signature> wanted{{op.kind, op.key}, op.signature};
  const auto known = std::find(defined_.begin(), defined_.end(), wanted);
  const auto id = static_cast<uint32_t>(known - defined_.begin());
  if (known == defined_.end()) {
    defined_.push_back(wanted);
    world_.send_to_coordinator(
        rank_, Define{.id = id, .kind = op.kind, .key = op.key, .signature = op.signature});
  }
  return id;
}

void Client::announce(const LiveOp& op) {
  // Only rank 0's priority counts: the others say something else.
  const int priority = rank_ == 0 ? op.op.priority : static_cast<int>(world_.random().below(9));
  outbox_.calls.push_back({define(op.op), op.number, priority});
  if (flush_scheduled_) return;
  if (world_.random().chance(50)) return flush();
  flush_scheduled_ = true;
  world_.after(world_.random_delay(200), [this] { flush(); });
}

void Client::flush() {
  flush_scheduled_ = false;
  if (over() || outbox_.calls.empty()) return;
  world_.send_to_coordinator(rank_, outbox_);
  outbox_.calls.clear();
}

bool Client::everything_ended() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const Step& s) { return s.all_ended(); });
}

void Client::say_goodbye() {
  flush();
  leaving_ = true;
  world_.send_to_coordinator(rank_, Goodbye{});
  const Scenario& s = world_.scenario();
  if (!s.leaver || s.leaver->rank != rank_ || s.leaver->patient) return;
  world_.after(std::chrono::seconds(5), [this] {
    if (over()) return;
    closed_ = true;
    world_.close_connection(rank_, false);
  });
}

std::optional<bool> Client::last_step_done() const {
  if (steps_.size() != world_.scenario().steps.size()) return std::nullopt;
  const auto& ops = steps_.back().ops;
  return std::none_of(ops.begin(), ops.end(), [](const auto& op) { return op->failed; });
}

// ---- what the coordinator says ----

void Client::on(const Name& name) { names_[name.id] = {name.kind, name.key}; }

void Client::on(const Batch& batch) {
  batches_.push_back(to_text(batch));
  queue_.push_back(batch);
  if (!running_) start_next_batch();
}

void Client::start_next_batch() {
  if (queue_.empty() || over() || stopped_exchanging_) return;
  running_ = std::move(queue_.front());
  queue_.pop_front();
  world_.enter_batch(rank_, running_->number);
}

void Client::exchanged(uint64_t number) {
  if (over() || stopped_exchanging_ || !running_ || running_->number != number) return;
  for (const BatchEntry& entry : running_->entries) {
    const KindAndKey series = names_[entry.id];
    const auto live = live_.find({series, entry.call});
    if (live == live_.end()) {
      world_.complain(fmt::format("rank {} exchanged call {} of {} without having made it", rank_,
                                  entry.call, series.second));
      continue;
    }
    LiveOp& op = *live->second;
    if (series.first == CallKind::kJoin) op.begin = entry.begin;
    const uint64_t end = range_of(op.op.kind, op.op.signature, world_.scenario().size).end;
    if (entry.begin != op.begin || entry.end > end || entry.last != (entry.end == end))
      world_.complain(fmt::format("rank {} got a wrong piece of {}", rank_, series.second));
    op.begin = entry.end;
    if (entry.last) end_call(series, entry.call, {.done = true, .code = {}, .message = {}});
  }
  running_.reset();
  world_.send_to_coordinator(rank_, Progress{number});
  start_next_batch();
  go_on();
}

void Client::on(const Failed& failed) {
  const auto name = names_.find(failed.id);
  if (name == names_.end())
    return world_.complain(fmt::format("rank {} cannot know what failed", rank_));
  uint64_t& made = made_[name->second];
  if (failed.call > made && !passes_over(name->second, failed))
    world_.complain(fmt::format("rank {} was told too early of {}", rank_, failed.message));
  made = std::max(made, failed.call);
  end_call(name->second, failed.call,
           {.done = false, .code = failed.code, .message = failed.message});
  go_on();
}

void Client::on(const StandIn& stand_in) {
  const auto name = names_.find(stand_in.id);
  if (name == names_.end())
    return world_.complain(fmt::format("rank {} cannot know where to stand in", rank_));
  const auto& [series, number] = std::pair(name->second, stand_in.call);
  if (steps_.size() != world_.scenario().epoch->join + 1 || steps_.back().all_ended())
    world_.complain(fmt::format("rank {} is told to stand in but has not joined", rank_));
  if (number != ++made_[series])
    world_.complain(fmt::format("rank {} stands in for call {} of {} after {}", rank_, number,
                                series.second, made_[series] - 1));
  auto& op = stand_ins_.emplace_back(std::make_unique<LiveOp>());
  op->op = {.kind = series.first, .key = series.second, .signature = stand_in.signature};
  op->number = number;
  live_[{series, number}] = op.get();
}

// Whether this rank will not make the call that failed: it skips it, made one of another kind
// instead, or it does not matter any more because a rank has left.
bool Client::passes_over(const KindAndKey& series, const Failed& failed) const {
  if (failed.code == ErrorCode::kMismatch || failed.code == ErrorCode::kPeerLost) return true;
  const auto live = live_.find({series, failed.call});
  return live != live_.end() && live->second->twist == Twist::kSkip;
}

void Client::end_call(const KindAndKey& series, uint64_t number, CallEnd end) {
  const bool failed = !end.done;
  if (!ends_.emplace(std::pair(series, number), std::move(end)).second)
    world_.complain(
        fmt::format("call {} of {} ended twice on rank {}", number, series.second, rank_));
  const auto live = live_.find({series, number});
  if (live == live_.end()) return;
  live->second->ended = true;
  live->second->failed = failed;
  live_.erase(live);
}

std::string Client::waiting_for() const {
  std::string text = fmt::format("rank {} ({}):", rank_, leaving_ ? "leaving" : "running");
  for (const auto& [call, op] : live_)
    text += fmt::format(" {} {}#{}", to_string(call.first.first), call.first.second, call.second);
  return text;
}

}  // namespace pushpull::simulator
