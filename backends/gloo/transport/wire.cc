#include "backends/gloo/transport/wire.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

namespace pushpull::transport {

namespace {

constexpr char kItClosed[] = "it closed its connection";
constexpr uint32_t kEventTag = ~uint32_t{0};
// A group member that has closed can never help this wait; others may, so they get this long.
constexpr auto kClosedGrace = std::chrono::milliseconds(200);

}  // namespace

Result<std::unique_ptr<Wire>> Wire::create(int rank, std::vector<Socket> sockets,
                                           std::vector<Peer> peers) {
  std::unique_ptr<Wire> wire(new Wire(rank, std::move(peers)));
  if (auto ok = wire->open(std::move(sockets)); !ok) return fail(ok.error());
  return wire;
}

Wire::Wire(int rank, std::vector<Peer> peers)
    : rank_(rank), peers_(std::move(peers)), process_(::getpid()) {}

Result<void> Wire::open(std::vector<Socket> sockets) {
  epoll_ = Socket(::epoll_create1(EPOLL_CLOEXEC));
  event_ = Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !event_.valid())
    return fail(ErrorCode::kUnavailable,
                fmt::format("no descriptor for waiting on the network: {}", errno_text(errno)));
  const auto add = [this](int fd, uint32_t tag, uint32_t events) -> Result<void> {
    epoll_event event{};
    event.events = events;
    event.data.u32 = tag;
    if (::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot watch a connection: {}", errno_text(errno)));
  };
  if (auto ok = add(event_.fd(), kEventTag, EPOLLIN); !ok) return ok;
  connections_.resize(sockets.size());
  for (size_t peer = 0; peer < sockets.size(); ++peer) {
    if (static_cast<int>(peer) == rank_) continue;
    connections_[peer] =
        std::make_unique<Connection>(std::move(sockets[peer]), static_cast<int>(peer));
    // Edges: whether there is something to read or room to write is remembered by the connection,
    // so that a message without a receive costs nothing while it waits.
    if (auto ok = add(connections_[peer]->fd(), static_cast<uint32_t>(peer),
                      EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
        !ok)
      return ok;
  }
  watch();
  return {};
}

Wire::~Wire() {
  unwatch();
  if (process_ != ::getpid()) return;
  for (auto& connection : connections_)
    if (connection != nullptr) connection->finish();
}

void Wire::after_fork_in_child() {
  for (auto& connection : connections_)
    if (connection != nullptr) connection->drop();
  epoll_.close();
  event_.close();
}

// --- starting operations
// ---------------------------------------------------------------------------

Result<void> Wire::send(int to, SendOp op) {
  const std::lock_guard lock(mutex_);
  if (auto ok = usable(); !ok) return ok;
  if (auto ok = connection(to)->send(std::move(op)); !ok) return broken(ok.error());
  return {};
}

Result<void> Wire::recv(int from, RecvOp op) {
  const std::lock_guard lock(mutex_);
  if (auto ok = usable(); !ok) return ok;
  if (auto ok = connection(from)->recv(std::move(op)); !ok) return broken(ok.error());
  return {};
}

Result<void> Wire::recv_any(const std::vector<int>& from, RecvOp op) {
  const std::lock_guard lock(mutex_);
  if (auto ok = usable(); !ok) return ok;
  op.taken = std::make_shared<bool>(false);
  for (int peer : from)
    if (auto ok = connection(peer)->recv(op); !ok) return broken(ok.error());
  return {};
}

Result<void> Wire::add_target(int from, uint64_t slot, const Target& target) {
  const std::lock_guard lock(mutex_);
  if (auto ok = usable(); !ok) return ok;
  if (auto ok = connection(from)->add_target(slot, target); !ok) return broken(ok.error());
  return {};
}

void Wire::remove_target(int from, uint64_t slot) {
  const std::lock_guard lock(mutex_);
  connection(from)->remove_target(slot);
}

void Wire::forget(const Completion* completion) {
  const std::lock_guard lock(mutex_);
  for (auto& connection : connections_)
    if (connection != nullptr) connection->forget(completion);
}

// --- waiting
// ---------------------------------------------------------------------------------------

Result<bool> Wire::wait(const std::function<bool()>& done, Deadline deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto ok = usable(); !ok) return fail(ok.error());
    if (done()) return true;
    auto moved = progress();
    if (!moved) return moved;
    if (*moved) continue;
    if (auto ok = check_closed(); !ok) return fail(ok.error());
    if (Clock::now() >= deadline) return false;
    sleep(lock, deadline);
  }
}

Result<bool> Wire::test(const std::function<bool()>& done) {
  const std::lock_guard lock(mutex_);
  if (auto ok = usable(); !ok) return fail(ok.error());
  if (done()) return true;
  if (auto moved = progress(); !moved) return moved;
  if (auto ok = usable(); !ok) return fail(ok.error());
  return done();
}

Result<bool> Wire::wait_sent(int to, uint64_t count, Deadline deadline) {
  return wait([c = connection(to), count] { return c->sent() >= count; }, deadline);
}

Result<bool> Wire::wait_received(int from, uint64_t count, Deadline deadline) {
  return wait([c = connection(from), count] { return c->received() >= count; }, deadline);
}

Result<bool> Wire::test_sent(int to, uint64_t count) {
  return test([c = connection(to), count] { return c->sent() >= count; });
}

Result<bool> Wire::test_received(int from, uint64_t count) {
  return test([c = connection(from), count] { return c->received() >= count; });
}

Result<bool> Wire::progress() {
  bool any = false;
  for (auto& connection : connections_) {
    if (connection == nullptr) continue;
    auto moved = connection->progress();
    if (!moved) {
      auto result = broken(moved.error());
      return fail(result.error());
    }
    any = any || *moved;
  }
  return any;
}

void Wire::sleep(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  if (!leading_) return lead(lock, deadline);
  ++followers_;
  const auto limit = Clock::now() + std::chrono::seconds(1);
  followers_wake_.wait_until(lock, std::min(deadline, limit));
  --followers_;
}

void Wire::lead(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  const int cap = closed_peer_ >= 0 ? static_cast<int>(kClosedGrace.count()) : 1000;
  std::array<epoll_event, 64> events;
  leading_ = true;
  lock.unlock();
  const int n = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()),
                             milliseconds_left(deadline, cap));
  lock.lock();
  leading_ = false;
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u32 == kEventTag) {
      uint64_t count = 0;
      [[maybe_unused]] const auto ignored = ::read(event_.fd(), &count, sizeof count);
      continue;
    }
    const int peer = static_cast<int>(event.data.u32);
    const bool over = (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if (over) note_closed(peer);
    if (over || (event.events & EPOLLIN) != 0) connection(peer)->mark_readable();
    if (over || (event.events & EPOLLOUT) != 0) connection(peer)->mark_writable();
  }
  // They look for themselves, and one of them leads if this thread has what it wanted.
  if (followers_ > 0) followers_wake_.notify_all();
}

// --- failing
// ---------------------------------------------------------------------------------------

Result<void> Wire::usable() {
  if (!failure_ && aborted_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(abort_mutex_);
    failure_ = abort_reason_;
    for (auto& connection : connections_)
      if (connection != nullptr) connection->clear();
  }
  if (failure_) return fail(*failure_);
  return {};
}

Result<void> Wire::broken(Error error) {
  // An abort came first, and what this is about may be a consequence of it.
  if (auto ok = usable(); !ok) return ok;
  // A peer that closed before is more likely the cause than one that fails now.
  const bool lost = error.code() == ErrorCode::kPeerLost && closed_peer_ >= 0;
  const int culprit = lost ? closed_peer_ : error.rank();
  const std::string what = culprit == error.rank() ? error.message() : kItClosed;
  failure_ = Error(error.code(),
                   error.code() == ErrorCode::kPeerLost
                       ? fmt::format("{} was lost: {}", name(culprit), what)
                       : fmt::format("this rank and {} disagree: {}", name(culprit), what));
  failure_->at_rank(culprit, peers_[static_cast<size_t>(culprit)].host);
  for (auto& connection : connections_)
    if (connection != nullptr) connection->clear();
  wake();
  return fail(*failure_);
}

void Wire::note_closed(int peer) {
  if (closed_peer_ >= 0) return;
  closed_peer_ = peer;
  closed_since_ = Clock::now();
}

Result<void> Wire::check_closed() {
  if (closed_peer_ < 0 || Clock::now() - closed_since_ < kClosedGrace) return {};
  Error error(ErrorCode::kPeerLost, kItClosed);
  error.at_rank(closed_peer_);
  return broken(std::move(error));
}

void Wire::change(const std::function<void()>& what) {
  {
    const std::lock_guard lock(mutex_);
    what();
  }
  wake();
}

void Wire::finish(int peer) {
  const std::lock_guard lock(mutex_);
  if (connection(peer) != nullptr) connection(peer)->finish();
}

void Wire::abort(const Error& reason) {
  {
    const std::lock_guard lock(abort_mutex_);
    if (abort_reason_) return;
    abort_reason_ = reason;
  }
  aborted_.store(true, std::memory_order_release);
  wake();
}

void Wire::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const auto ignored = ::write(event_.fd(), &one, sizeof one);
}

}  // namespace pushpull::transport
