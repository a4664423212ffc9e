#include "tests/simulator/world.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/simulator/client.h"

namespace pushpull::simulator {
namespace {

constexpr auto kTimeLimit = std::chrono::minutes(30);
constexpr size_t kMaxComplaints = 10;

}  // namespace

World::World(const Scenario& scenario)
    : scenario_(scenario),
      random_(scenario.seed ^ 0xABCDEF),
      now_(std::chrono::hours(1)),
      referee_(std::make_unique<Referee>(scenario_, [this](std::string s) { complain(s); })),
      coordinator_(std::make_unique<Coordinator>(scenario.options, *this)),
      links_(static_cast<size_t>(scenario.size)) {
  for (int r = 0; r < scenario.size; ++r) clients_.push_back(std::make_unique<Client>(*this, r));
  if (scenario.pause.count() > 0) {
    pause_begin_ = now_ + scenario.pause_at;
    pause_end_ = pause_begin_ + scenario.pause;
  }
}

World::~World() = default;

void World::complain(std::string what) {
  if (complaints_.size() < kMaxComplaints) complaints_.push_back(std::move(what));
}

void World::after(Duration delay, std::function<void()> what) {
  events_.push({now_ + delay, order_++, std::move(what)});
}

void World::run() {
  join_all();
  const auto limit = now_ + kTimeLimit;
  while (!over() && !events_.empty() && complaints_.empty()) {
    Event event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = event.when;
    if (now_ > limit) break;
    event.what();
  }
  if (complaints_.empty()) check_end();
}

bool World::over() const {
  return std::all_of(clients_.begin(), clients_.end(), [](const auto& c) { return c->over(); });
}

void World::join_all() {
  std::vector<int> order;
  for (int r = 0; r < scenario_.size; ++r) order.push_back(r);
  random_.shuffle(order);
  for (const int rank : order)
    after(random_delay(scenario_.max_delay_us), [this, rank] {
      at_coordinator([this, rank] {
        const Member member{.rank = rank,
                            .host = fmt::format("host{}", rank / 2),
                            .pid = 100 + rank,
                            .boot_id = {},
                            .address = {}};
        if (!coordinator_->join(member, now_)) complain("a rank could not join");
      });
    });
}

// ---- the coordinator's process ----

void World::at_coordinator(std::function<void()> what) {
  if (now_ >= pause_begin_ && now_ < pause_end_) {
    after(pause_end_ - now_, [this, what = std::move(what)] { at_coordinator(what); });
    return;
  }
  what();
  schedule_tick();
}

void World::schedule_tick() {
  const auto next = coordinator_->next_timer();
  if (next == Clock::time_point::max() || next >= tick_at_) return;
  tick_at_ = std::max(next, now_);
  // A timer may be late.
  after(tick_at_ - now_ + random_delay(5000), [this, due = tick_at_] {
    if (due != tick_at_) return;
    tick_at_ = Clock::time_point::max();
    at_coordinator([this] { coordinator_->tick(now_); });
  });
}

Clock::time_point World::arrival(Clock::time_point* last) {
  return *last = std::max(*last, now_ + random_delay(scenario_.max_delay_us));
}

void World::arrive(int rank, std::function<void()> what) {
  Link& link = links_[static_cast<size_t>(rank)];
  after(arrival(&link.up) - now_, [this, rank, what = std::move(what)]() mutable {
    links_[static_cast<size_t>(rank)].inbox.push_back(std::move(what));
    at_coordinator([this, rank] {
      auto& inbox = links_[static_cast<size_t>(rank)].inbox;
      const auto next = std::move(inbox.front());
      inbox.pop_front();
      next();
    });
  });
}

void World::send_to_coordinator(int rank, const FromRank& message) {
  if (links_[static_cast<size_t>(rank)].closed) return;
  std::string bytes;
  encode(message, &bytes);
  arrive(rank, [this, rank, bytes = std::move(bytes)] {
    const Link& link = links_[static_cast<size_t>(rank)];
    if (link.closed && link.lossy) return;
    const auto decoded = decode_from_rank(bytes);
    if (!decoded || !*decoded || (*decoded)->bytes != bytes.size())
      return complain("a message did not survive the wire");
    referee_->on_receive(rank, (*decoded)->message, now_);
    coordinator_->receive(rank, (*decoded)->message, now_);
  });
}

void World::close_connection(int rank, bool abruptly) {
  Link& link = links_[static_cast<size_t>(rank)];
  if (std::exchange(link.closed, true)) return;
  link.lossy = abruptly && random_.chance(50);
  arrive(rank, [this, rank] {
    links_[static_cast<size_t>(rank)].ended = true;
    referee_->on_disconnected(rank);
    coordinator_->disconnected(rank, "closed", now_);
  });
}

void World::send(int rank, const ToRank& message) {
  referee_->on_send(rank, message, now_);
  deliver(rank, std::make_shared<ToRank>(message));
}

void World::send_all(const ToRank& message) {
  referee_->on_send(-1, message, now_);
  std::string bytes;
  encode(message, &bytes);
  auto decoded = decode_to_rank(bytes);
  if (!decoded || !*decoded || (*decoded)->bytes != bytes.size())
    return complain("an answer did not survive the wire");
  const auto shared = std::make_shared<const ToRank>(std::move((*decoded)->message));
  for (int r = 0; r < scenario_.size; ++r) deliver(r, shared);
}

void World::deliver(int rank, const std::shared_ptr<const ToRank>& message) {
  Link& link = links_[static_cast<size_t>(rank)];
  if (link.ended) return;
  after(arrival(&link.down) - now_, [this, rank, message] {
    if (!links_[static_cast<size_t>(rank)].closed)
      clients_[static_cast<size_t>(rank)]->on_message(*message);
  });
}

// ---- the data plane ----

void World::enter_batch(int rank, uint64_t number) {
  if (rank == 0)
    after(random_delay(30), [this, number] {
      at_coordinator([this, number] {
        referee_->on_batch_started(number);
        coordinator_->batch_started(number, now_);
      });
    });
  if (number >= in_batch_.size()) in_batch_.resize(number + 1);
  if (++in_batch_[number] < scenario_.size) return;
  for (const auto& client : clients_)
    after(random_delay(scenario_.max_exchange_us),
          [c = client.get(), number] { c->exchanged(number); });
}

void World::leave_data_plane(int rank, bool noticed) {
  if (!noticed) return;
  for (const auto& client : clients_) {
    if (!random_.chance(50)) continue;
    const std::vector<int> suspects{rank, -1, static_cast<int>(random_.below(scenario_.size))};
    after(random_delay(200'000),
          [c = client.get(), suspect = random_.pick(suspects)] { c->notice(suspect); });
  }
}

// ---- the end ----

void World::check_end() {
  for (const auto& c : clients_)
    if (!c->over()) complain("still waiting: " + c->waiting_for());
  if (!complaints_.empty()) complain(coordinator_->dump(now_));

  bool must_end = false;
  for (const auto& c : clients_) must_end = must_end || c->injured_the_group();
  const auto& verdict = referee_->aborted();
  if (must_end && !verdict) complain("a rank was lost and nobody was told");
  if (verdict) {
    bool right = std::any_of(scenario_.injuries.begin(), scenario_.injuries.end(),
                             [&](const Injured& i) { return i.rank == verdict->culprit; });
    // A leaver that does not wait while batches still run is as good as dead.
    if (scenario_.leaver && !scenario_.leaver->patient)
      right = right || verdict->culprit == scenario_.leaver->rank;
    if (!right) complain("the wrong rank was blamed: " + verdict->message);
  }
  const Client* reference = nullptr;
  for (const auto& c : clients_) {
    if (!c->alive()) continue;
    if (c->aborted() && c->aborted()->message != verdict->message)
      complain("survivors heard different verdicts");
    if (verdict && !c->aborted() && !c->farewelled() && !c->said_goodbye())
      complain(fmt::format("rank {} was not told of the end", c->rank()));
    if (reference == nullptr) {
      reference = c.get();
      continue;
    }
    // All saw the same batches and the same ends, as far as they came.
    const size_t both = std::min(c->batches().size(), reference->batches().size());
    if (!std::equal(c->batches().begin(), c->batches().begin() + static_cast<ptrdiff_t>(both),
                    reference->batches().begin()))
      complain(fmt::format("ranks {} and {} saw different batches", c->rank(), reference->rank()));
    for (const auto& [call, end] : c->ends()) {
      const auto theirs = reference->ends().find(call);
      if (theirs == reference->ends().end() ? !verdict && !scenario_.leaver : theirs->second != end)
        complain(fmt::format("call {} of {} ended differently on ranks {} and {}", call.second,
                             call.first.second, c->rank(), reference->rank()));
    }
    if (!verdict && !scenario_.leaver && c->ends().size() != reference->ends().size())
      complain(fmt::format("ranks {} and {} saw different ends", c->rank(), reference->rank()));
  }
  if (verdict || scenario_.leaver) return;
  for (const auto& c : clients_)
    if (c->last_step_done() != true)
      complain(fmt::format("the last step did not work on rank {}", c->rank()));
}

}  // namespace pushpull::simulator
