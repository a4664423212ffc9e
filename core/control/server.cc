#include "core/control/server.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/agreement.h"

namespace pushpull {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr auto kVerdictDrain = std::chrono::seconds(2);

}  // namespace

// Rank 0 reaches its coordinator without a socket.
class LocalLink final : public ControlLink {
 public:
  explicit LocalLink(ControlServer& server) : server_(server) {}
  ~LocalLink() override { close(); }

  void start(Receiver receiver) override {
    {
      std::lock_guard lock(server_.mutex_);
      server_.local_ = std::make_shared<Receiver>(std::move(receiver));
    }
    server_.handle([](Coordinator&) {});
  }

  void send(std::span<const FromRank> messages) override {
    server_.handle([&](Coordinator& c) {
      const auto now = Clock::now();
      for (const FromRank& m : messages) c.receive(0, m, now);
    });
  }

  void close() override {
    std::unique_lock lock(server_.mutex_);
    server_.local_ = nullptr;
    // A delivery that runs now ends first, unless it is what called us.
    server_.changed_.wait(lock, [this] {
      return !server_.delivering_ || server_.deliverer_ == std::this_thread::get_id();
    });
  }

  void share(int rank, const MailboxPair& pair) override { server_.share(rank, pair); }
  bool poll() override { return server_.poll(); }
  void watch(bool on) override { server_.watch(on); }
  void drain() override { server_.drain(); }
  int fd() const override { return -1; }

 private:
  ControlServer& server_;
};

ControlServer::ControlServer(CoordinatorOptions options, std::string settings, IoThread& io,
                             std::shared_ptr<Logger> logger)
    : io_(io),
      logger_(std::move(logger)),
      settings_(std::move(settings)),
      coordinator_(options, *this),
      reader_of_(static_cast<size_t>(options.size)) {
  io_.every(kTick, [this, alive = std::weak_ptr(alive_)] {
    if (!alive.lock()) return;
    handle([](Coordinator& c) {
      const auto now = Clock::now();
      if (now >= c.next_timer()) c.tick(now);
    });
  });
}

ControlServer::~ControlServer() {
  // Handlers that run now use *this; the caller stops the loop first.
  alive_.reset();
  for (auto& [rank, peer] : peers_)
    if (peer.connection) peer.connection->close();
}

template <class F>
void ControlServer::handle(F&& event) {
  std::unique_lock lock(mutex_);
  event(coordinator_);
  flush_peers();
  changed_.notify_all();
  // Rank 0's own messages are delivered by one thread at a time, in order and without the lock, so
  // that what they set off may come back here.
  while (!delivering_ && local_ && !for_local_.empty()) {
    const auto receiver = local_;
    std::deque<ToRank> messages;
    messages.swap(for_local_);
    delivering_ = true;
    deliverer_ = std::this_thread::get_id();
    lock.unlock();
    for (const ToRank& m : messages) receiver->message(m);
    lock.lock();
    delivering_ = false;
    changed_.notify_all();
  }
}

void ControlServer::send(int rank, const ToRank& message) {
  if (rank == 0) {
    for_local_.push_back(message);
    return;
  }
  std::string frame;
  encode(message, &frame);
  const auto found = peers_.find(rank);
  if (found == peers_.end()) return;
  queue(rank, found->second, frame, std::holds_alternative<Aborted>(message) ||
                                        std::holds_alternative<Farewell>(message));
}

void ControlServer::send_all(const ToRank& message) {
  for_local_.push_back(message);
  std::string frame;
  encode(message, &frame);
  const bool last = std::holds_alternative<Aborted>(message);
  for (auto& [rank, peer] : peers_) queue(rank, peer, frame, last);
}

void ControlServer::queue(int rank, Peer& peer, std::string_view frame, bool last) {
  if (!peer.connection) return;
  if (!last) {
    if (peer.outgoing.empty()) waiting_.push_back(rank);
    peer.outgoing.append(frame);
    return;
  }
  if (!peer.outgoing.empty()) flush(peer, std::exchange(peer.outgoing, {}));
  // Over the connection always, since it ends with this.
  peer.connection->send(frame);
  peer.connection->finish(kVerdictDrain);
}

void ControlServer::flush_peers() {
  for (int rank : waiting_) {
    Peer& peer = peers_[rank];
    if (!peer.outgoing.empty()) flush(peer, peer.outgoing);
    peer.outgoing.clear();
  }
  waiting_.clear();
}

void ControlServer::flush(Peer& peer, std::string_view frames) {
  if (peer.mailbox) return peer.mailbox->send(frames);
  peer.connection->send(frames);
}

// ---- memory shared with ranks of this host ----

void ControlServer::share(int rank, const MailboxPair& pair) {
  auto reader = std::make_unique<MailboxReader>(
      *pair.in, pair.owner, [this, rank](std::string_view bytes) { return take(rank, bytes); });
  MailboxReader* const found = reader.get();
  readers_.emplace_back(rank, std::move(reader));
  std::string bell;
  encode(ToRank(CoordinatorHeartbeat{}), &bell);
  // Whoever finds out may hold the lock.
  const auto stuck = [this, rank, alive = std::weak_ptr(alive_)] {
    io_.post([this, rank, alive] {
      if (alive.lock()) lose(rank, "it stopped reading");
    });
  };
  {
    std::lock_guard lock(mutex_);
    Peer& peer = peers_[rank];
    peer.mailbox =
        std::make_shared<MailboxSender>(io_, pair, peer.connection, std::move(bell), stuck);
  }
  reader_of_[static_cast<size_t>(rank)].store(found, std::memory_order_release);
  // What came before this rank looked for it.
  io_.post([this, rank, found, alive = std::weak_ptr(alive_)] {
    if (alive.lock()) drain(found, rank);
  });
}

bool ControlServer::poll() {
  bool any = false;
  for (auto& [rank, reader] : readers_) {
    const auto drained = reader->try_drain();
    if (!drained) lose(rank, drained.error().message());
    any = any || !drained || *drained;
  }
  return any;
}

void ControlServer::watch(bool on) {
  for (auto& [rank, reader] : readers_) reader->watch(on);
}

void ControlServer::drain() {
  for (auto& [rank, reader] : readers_) drain(reader.get(), rank);
}

void ControlServer::drain(MailboxReader* reader, int rank) {
  if (!reader) return;
  if (const auto drained = reader->drain(); !drained) lose(rank, drained.error().message());
}

void ControlServer::lose(int rank, const std::string& why) {
  handle([&](Coordinator& c) {
    peers_[rank].connection->close();
    c.disconnected(rank, why, Clock::now());
  });
}

Result<void> ControlServer::check(const Hello& hello) {
  auto joining = decode_joining(hello.detail);
  if (!joining) return fail(joining.error());
  joining->member.rank = hello.rank;
  if (auto free = check_free(hello, joining->member); !free) return free;
  Member leader;
  {
    std::lock_guard lock(mutex_);
    leader = coordinator_.members()[0];
  }
  const auto differs = disagreement(leader, settings_, joining->member, joining->settings);
  if (!differs) return {};
  abort(*differs);
  return fail(*differs);
}

// Whether the rank is still to come, and nobody else's.
Result<void> ControlServer::check_free(const Hello& hello, const Member& member) {
  std::lock_guard lock(mutex_);
  if (const auto verdict = coordinator_.verdict()) return fail(*verdict);
  if (coordinator_.all_joined())
    return fail(ErrorCode::kUnavailable,
                fmt::format("run {} of job '{}' takes no more ranks", hello.run, hello.job));
  const auto found = peers_.find(hello.rank);
  if (hello.rank == 0 || (found != peers_.end() && !found->second.connection->closed())) {
    for (const Member& m : coordinator_.members()) {
      if (m.rank != hello.rank) continue;
      refused_ = fmt::format("rank {} is claimed twice: by pid {} on {} and by pid {} on {}; give every "
                             "process its own PUSHPULL_RANK",
                             hello.rank, m.pid, m.host, member.pid, member.host);
      return fail(ErrorCode::kInvalidArgument, refused_);
    }
  }
  return {};
}

void ControlServer::accepted(const Hello& hello, Socket socket) {
  const int rank = hello.rank;
  auto joining = decode_joining(hello.detail);
  if (!joining) return;
  Member* const member = &joining->member;
  auto connection = Connection::create(io_, std::move(socket));
  handle([&](Coordinator& c) {
    const auto old = peers_.find(rank);
    if (old != peers_.end() && !old->second.connection->closed()) return;
    peers_[rank] = Peer{connection, {}, nullptr};
    member->rank = rank;
    if (auto joined = c.join(*member, Clock::now()); !joined) {
      logger_->warning(joined.error().message());
      peers_[rank].connection->close();
      return;
    }
    logger_->debug(fmt::format("rank {} has joined from {}; {}", rank, member->host, c.joined_so_far()));
  });
  connection->start(
      [this, rank, alive = std::weak_ptr(alive_)](std::string_view bytes) -> Result<size_t> {
        if (!alive.lock()) return bytes.size();
        return hear(rank, bytes);
      },
      [this, rank, alive = std::weak_ptr(alive_)](const std::string& why) {
        if (!alive.lock()) return;
        drain(reader_of_[static_cast<size_t>(rank)].load(std::memory_order_acquire), rank);
        handle([&](Coordinator& c) { c.disconnected(rank, why, Clock::now()); });
      });
}

// Whatever comes over the connection came after what is in the mailbox.
Result<size_t> ControlServer::hear(int rank, std::string_view bytes) {
  drain(reader_of_[static_cast<size_t>(rank)].load(std::memory_order_acquire), rank);
  return take(rank, bytes);
}

Result<size_t> ControlServer::take(int rank, std::string_view bytes) {
  size_t used = 0;
  std::vector<FromRank> messages;
  std::optional<Error> bad;
  while (used < bytes.size()) {
    auto decoded = decode_from_rank(bytes.substr(used));
    if (!decoded) {
      bad = decoded.error();
      break;
    }
    if (!*decoded) break;
    used += (*decoded)->bytes;
    messages.push_back(std::move((*decoded)->message));
  }
  handle([&](Coordinator& c) {
    const auto now = Clock::now();
    for (const FromRank& m : messages) c.receive(rank, m, now);
    if (bad)
      c.abort(Error(ErrorCode::kAborted,
                    fmt::format("rank {} sent a malformed message: {}", rank, bad->message()))
                  .at_rank(rank));
  });
  if (bad) return fail(*bad);
  return used;
}

Result<void> ControlServer::join_locally(const Member& member) {
  Result<void> joined;
  handle([&](Coordinator& c) { joined = c.join(member, Clock::now()); });
  return joined;
}

std::unique_ptr<ControlLink> ControlServer::local_link() {
  return std::make_unique<LocalLink>(*this);
}

void ControlServer::batch_started(uint64_t number) {
  handle([&](Coordinator& c) { c.batch_started(number, Clock::now()); });
}

bool ControlServer::all_joined() const {
  std::lock_guard lock(mutex_);
  return coordinator_.all_joined();
}

std::string ControlServer::joined_so_far() const {
  std::lock_guard lock(mutex_);
  return coordinator_.joined_so_far() + (refused_.empty() ? "" : " (" + refused_ + ")");
}

void ControlServer::abort(const Error& reason) {
  handle([&](Coordinator& c) { c.abort(reason); });
}

bool ControlServer::wait_until_left(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto ended = [this] {
    if (coordinator_.all_left()) return true;
    if (!coordinator_.aborted()) return false;
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const auto& p) { return p.second.connection->closed(); });
  };
  // Connections end without an event of the coordinator after a verdict: look now and then.
  while (!ended() && Clock::now() < deadline)
    changed_.wait_until(lock, std::min(deadline, Clock::now() + std::chrono::milliseconds(10)));
  return ended();
}

std::string ControlServer::dump() const {
  std::lock_guard lock(mutex_);
  return coordinator_.dump(Clock::now());
}

std::vector<int> ControlServer::descriptors() const {
  std::vector<int> fds;
  for (const auto& [rank, peer] : peers_)
    if (peer.connection && !peer.connection->closed()) fds.push_back(peer.connection->fd());
  return fds;
}

}  // namespace pushpull
