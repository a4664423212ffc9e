#include "core/net/mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/net/dial_attempt.h"
#include "core/net/resolve.h"

namespace pushpull {
namespace {

constexpr char kConfirmation = '+';
constexpr int kMaxRanks = 1 << 20;
constexpr int kListedRanks = 16;

// Wakes a poll() from another thread.
class Waker {
 public:
  Waker() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.fd(); }
  void wake() const { (void)!::eventfd_write(fd_.fd(), 1); }
  void clear() const {
    eventfd_t count = 0;
    (void)!::eventfd_read(fd_.fd(), &count);
  }

 private:
  Socket fd_;
};

}  // namespace

struct TcpMesh::State {
  std::string secret;
  mutable std::mutex mutex;
  bool known = false;
  Group group;  // job, run, generation, rank, members
  struct Arrival {
    Hello hello;
    Socket socket;
  };
  std::map<std::pair<int, int>, Arrival> arrived;  // by generation and rank
  std::set<int> connected;  // generations that connect() returned
  std::optional<Error> cancelled;
  std::set<const Waker*> wakers;

  Result<void> judge(const Hello& hello) const;
  void wake_all() const {
    for (const Waker* waker : wakers) waker->wake();
  }
};

Result<void> TcpMesh::State::judge(const Hello& hello) const {
  const auto refuse = [&](ErrorCode code, std::string why) -> Result<void> {
    return fail(Error(code, std::move(why)).at_rank(hello.rank));
  };
  if (hello.purpose != Purpose::kData || hello.rank < 0 || hello.rank >= kMaxRanks ||
      hello.generation < 0) {
    return refuse(ErrorCode::kInvalidArgument, "this is no data connection of a rank");
  }
  if (!known) return {};
  if (hello.job != group.job) {
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} of job '{}' called rank {} of job '{}'", hello.rank,
                              hello.job, group.rank, group.job));
  }
  if (hello.run != group.run || hello.generation < group.generation) {
    Error error(
        ErrorCode::kAborted,
        fmt::format("rank {} of an earlier run of job '{}' called rank {} of the present one",
                    hello.rank, hello.job, group.rank));
    return fail(error.at_rank(hello.rank).make_restartable());
  }
  if (hello.generation > group.generation) return {};  // it is ahead; set_group() follows
  if (hello.rank <= group.rank || hello.rank >= group.size()) {
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} of {} has no reason to call rank {}", hello.rank,
                              group.size(), group.rank));
  }
  if (connected.contains(hello.generation)) {
    return refuse(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} is connected to rank {} already", hello.rank, group.rank));
  }
  return {};
}

// ---- one call of connect() ----

class TcpMesh::Connecting {
 public:
  // With these ranks, or with all.
  Connecting(State& state, Deadline deadline, std::vector<int> ranks)
      : state_(state), began_(Clock::now()), deadline_(deadline), ranks_(std::move(ranks)) {}
  ~Connecting() {
    const std::lock_guard lock(state_.mutex);
    state_.wakers.erase(&waker_);
  }
  Result<std::vector<Socket>> run();

 private:
  struct Peer {
    SocketAddress address;  // of those we dial
    std::optional<DialAttempt> attempt;
    Backoff backoff;
    Deadline next_try = {};
    Socket unconfirmed;  // of those who dial us
    Socket socket;       // the result
    std::string last_seen;
  };

  Result<void> prepare();
  Result<void> take_arrived();
  Result<void> advance_dial(int rank, Peer& peer);
  void advance_accepted(Peer& peer);
  void wait();
  bool complete() const;
  Error timeout() const;
  bool dials(int rank) const { return rank < group_.rank; }

  State& state_;
  const Clock::time_point began_;
  const Deadline deadline_;
  const Waker waker_;
  std::vector<int> ranks_;  // ascending
  Group group_;
  std::vector<Peer> peers_;  // by rank
};

Result<std::vector<Socket>> TcpMesh::Connecting::run() {
  if (auto prepared = prepare(); !prepared) return fail(prepared.error());
  while (true) {
    if (auto taken = take_arrived(); !taken) return fail(taken.error());
    for (const int r : ranks_) {
      Peer& peer = peers_[static_cast<size_t>(r)];
      if (!dials(r)) {
        advance_accepted(peer);
      } else if (auto dialed = advance_dial(r, peer); !dialed) {
        return fail(dialed.error());
      }
    }
    if (complete()) break;
    if (Clock::now() >= deadline_) return fail(timeout());
    wait();
  }
  const std::lock_guard lock(state_.mutex);
  if (state_.cancelled) return fail(*state_.cancelled);
  state_.connected.insert(group_.generation);
  std::vector<Socket> sockets;
  for (const int r : ranks_) sockets.push_back(std::move(peers_[static_cast<size_t>(r)].socket));
  return sockets;
}

Result<void> TcpMesh::Connecting::prepare() {
  if (!waker_.valid()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot connect the ranks: {}", errno_words(errno)));
  }
  {
    const std::lock_guard lock(state_.mutex);
    if (!state_.known) return fail(ErrorCode::kInvalidArgument, "the mesh has no group yet");
    group_ = state_.group;
    state_.wakers.insert(&waker_);
  }
  peers_.resize(group_.members.size());
  if (ranks_.empty()) {
    ranks_.resize(peers_.size());
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }
  for (const int r : ranks_) {
    if (!dials(r)) continue;
    const auto endpoint = parse_endpoint(group_.members[static_cast<size_t>(r)].address);
    auto address = endpoint ? numeric_address(*endpoint) : fail(endpoint.error());
    if (!address) {
      return fail(address.error().with_context("the address of " + group_.describe(r)).at_rank(r));
    }
    peers_[static_cast<size_t>(r)].address = *address;
  }
  return {};
}

Result<void> TcpMesh::Connecting::take_arrived() {
  const std::lock_guard lock(state_.mutex);
  if (state_.cancelled) return fail(*state_.cancelled);
  for (const int r : ranks_) {
    if (r <= group_.rank) continue;
    auto node = state_.arrived.extract({group_.generation, r});
    if (node.empty()) continue;
    Peer& peer = peers_[static_cast<size_t>(r)];
    peer.socket.close();
    peer.unconfirmed = std::move(node.mapped().socket);
  }
  return {};
}

Result<void> TcpMesh::Connecting::advance_dial(int rank, Peer& peer) {
  if (peer.socket.valid()) return {};
  if (!peer.attempt) {
    if (Clock::now() < peer.next_try) return {};
    Hello hello;
    hello.purpose = Purpose::kData;
    hello.job = group_.job;
    hello.run = group_.run;
    hello.generation = group_.generation;
    hello.rank = group_.rank;
    peer.attempt.emplace(peer.address, state_.secret, std::move(hello), deadline_);
  }
  if (!peer.attempt->advance()) return {};
  if (peer.attempt->hopeless()) {
    Error error = *peer.attempt->error();
    const std::string& host = group_.members[static_cast<size_t>(rank)].host;
    return fail(error.rank() < 0 ? error.at_rank(rank, host) : error);
  }
  if (const auto& error = peer.attempt->error()) {
    peer.last_seen = error->message();
  } else {
    peer.socket = peer.attempt->take();
    if (::send(peer.socket.fd(), &kConfirmation, 1, MSG_NOSIGNAL) != 1) {
      peer.last_seen = errno_words(errno);
      peer.socket.close();
    }
  }
  peer.attempt.reset();
  if (!peer.socket.valid()) peer.next_try = deadline_in(peer.backoff.next());
  return {};
}

void TcpMesh::Connecting::advance_accepted(Peer& peer) {
  if (!peer.unconfirmed.valid()) return;
  char byte = 0;
  const ssize_t got = ::recv(peer.unconfirmed.fd(), &byte, 1, 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got == 1 && byte == kConfirmation) {
    peer.socket = std::move(peer.unconfirmed);
  } else {
    peer.last_seen = "its connection broke";
    peer.unconfirmed.close();
  }
}

void TcpMesh::Connecting::wait() {
  std::vector<pollfd> ready = {{waker_.fd(), POLLIN, 0}};
  Deadline until = deadline_;
  for (const int r : ranks_) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    if (peer.attempt) {
      ready.push_back(peer.attempt->wanted());
      until = std::min(until, peer.attempt->expires());
    } else if (dials(r) && !peer.socket.valid()) {
      until = std::min(until, peer.next_try);
    } else if (peer.unconfirmed.valid()) {
      ready.push_back({peer.unconfirmed.fd(), POLLIN, 0});
    }
  }
  ::poll(ready.data(), ready.size(), milliseconds_left(until));
  waker_.clear();
}

bool TcpMesh::Connecting::complete() const {
  for (const int r : ranks_) {
    if (r != group_.rank && !peers_[static_cast<size_t>(r)].socket.valid()) return false;
  }
  return true;
}

Error TcpMesh::Connecting::timeout() const {
  std::string missing;
  int count = 0;
  int first = -1;
  for (const int r : ranks_) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    if (r == group_.rank || peer.socket.valid()) continue;
    if (first < 0) first = r;
    if (++count > kListedRanks) continue;
    std::string seen = peer.last_seen;
    if (seen.empty()) seen = dials(r) ? "no answer" : "it did not call";
    missing += fmt::format("{}{}: {}", missing.empty() ? "" : ", ", group_.describe(r), seen);
  }
  if (count > kListedRanks) missing += fmt::format(" and {} more", count - kListedRanks);
  Error error(ErrorCode::kTimeout,
              fmt::format("rank {} could not connect to all others within {}; missing {}",
                          group_.rank, seconds_text(deadline_ - began_), missing));
  return error.at_rank(first, group_.members[static_cast<size_t>(first)].host);
}

// ---- TcpMesh ----

TcpMesh::TcpMesh(std::string secret) : state_(std::make_unique<State>()) {
  state_->secret = std::move(secret);
}

TcpMesh::~TcpMesh() = default;

Result<void> TcpMesh::judge(const Hello& hello) const {
  const std::lock_guard lock(state_->mutex);
  return state_->judge(hello);
}

void TcpMesh::accepted(const Hello& hello, Socket socket) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->judge(hello)) return;
  state_->arrived[{hello.generation, hello.rank}] = {hello, std::move(socket)};
  state_->wake_all();
}

void TcpMesh::set_group(const std::string& job, const std::string& run, int generation, int rank,
                        std::vector<Member> members) {
  const std::lock_guard lock(state_->mutex);
  state_->known = true;
  state_->group.job = job;
  state_->group.run = run;
  state_->group.generation = generation;
  state_->group.rank = rank;
  state_->group.members = std::move(members);
  // What arrived before was judged by less.
  std::erase_if(state_->arrived,
                [&](const auto& entry) { return !state_->judge(entry.second.hello); });
}

Result<std::vector<Socket>> TcpMesh::connect(Deadline deadline) {
  return Connecting(*state_, deadline, {}).run();
}

class TcpMesh::Some final : public Mesh {
 public:
  Some(State& state, std::vector<int> ranks) : state_(state), ranks_(std::move(ranks)) {}
  Result<std::vector<Socket>> connect(Deadline deadline) override {
    return Connecting(state_, deadline, ranks_).run();
  }

 private:
  State& state_;
  const std::vector<int> ranks_;
};

std::unique_ptr<Mesh> TcpMesh::among(std::vector<int> ranks) {
  return std::make_unique<Some>(*state_, std::move(ranks));
}

void TcpMesh::cancel(const Error& reason) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->cancelled) state_->cancelled = reason;
  state_->wake_all();
}

}  // namespace pushpull
