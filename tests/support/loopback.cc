#include "tests/support/loopback.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "core/net/hello.h"

namespace pushpull::testing {
namespace {

tl::unexpected<Error> system_error(const char* call) {
  return fail(ErrorCode::kUnavailable, std::string(call) + ": " + errno_text(errno));
}

}  // namespace

Result<std::pair<Socket, Socket>> loopback_pair() {
  Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  if (::bind(listener.fd(), generic, length) != 0) return system_error("bind");
  if (::listen(listener.fd(), 1) != 0) return system_error("listen");
  if (::getsockname(listener.fd(), generic, &length) != 0) return system_error("getsockname");
  Socket one(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(one.fd(), generic, length) != 0) return system_error("connect");
  Socket other(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!other.valid()) return system_error("accept");
  for (const Socket* socket : {&one, &other}) {
    const int on = 1;
    if (::setsockopt(socket->fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        ::fcntl(socket->fd(), F_SETFL, O_NONBLOCK) != 0)
      return system_error("setting up a socket");
  }
  return std::pair(std::move(one), std::move(other));
}

class LoopbackNetwork::RankMesh : public Mesh {
 public:
  RankMesh(LoopbackNetwork& network, int rank) : network_(network), rank_(rank) {}
  Result<std::vector<Socket>> connect(Deadline) override { return network_.row(rank_); }

 private:
  LoopbackNetwork& network_;
  const int rank_;
};

LoopbackNetwork::LoopbackNetwork(int ranks) : ranks_(ranks), run_(random_id()) {
  for (int rank = 0; rank < ranks; ++rank)
    meshes_.push_back(std::make_unique<RankMesh>(*this, rank));
}

LoopbackNetwork::~LoopbackNetwork() = default;

Group LoopbackNetwork::group(int rank) {
  Group group;
  group.job = "test";
  group.run = run_;
  group.secret = "of the test";
  group.rank = rank;
  group.mesh = meshes_[static_cast<size_t>(rank)].get();
  for (int r = 0; r < ranks_; ++r) {
    Member member;
    member.rank = r;
    member.host = "localhost";
    member.pid = ::getpid();
    group.members.push_back(member);
  }
  return group;
}

Result<void> LoopbackNetwork::prepare() {
  const std::lock_guard lock(mutex_);
  return fill();
}

Result<std::vector<Socket>> LoopbackNetwork::row(int rank) {
  const std::lock_guard lock(mutex_);
  if (sockets_.empty())
    if (auto ok = fill(); !ok) return pushpull::fail(ok.error());
  return std::move(sockets_[static_cast<size_t>(rank)]);
}

Result<void> LoopbackNetwork::fill() {
  const auto n = static_cast<size_t>(ranks_);
  for (size_t r = 0; r < n; ++r) sockets_.emplace_back(n);
  for (size_t a = 0; a < n; ++a)
    for (size_t b = 0; b < a; ++b) {
      auto pair = loopback_pair();
      if (!pair) return pushpull::fail(pair.error());
      sockets_[a][b] = std::move(pair->first);
      sockets_[b][a] = std::move(pair->second);
    }
  return {};
}

}  // namespace pushpull::testing
