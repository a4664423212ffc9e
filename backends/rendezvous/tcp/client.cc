#include "backends/rendezvous/tcp/client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "core/net/acceptor.h"
#include "core/net/dial_attempt.h"

namespace pushpull::tcp_store {
namespace {

// A server whose host went away without a word is noticed within 6 s, also by one that only waits.
void keep_alive(int fd) {
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 3);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

}  // namespace

Client::Client(Endpoint server, std::string secret, const std::string& job)
    : server_(std::move(server)), secret_(std::move(secret)) {
  hello_.purpose = Purpose::kStore;
  hello_.job = job;
  hello_.detail = random_id();
}

Result<std::optional<Reply>> Client::call(const Request& request, Deadline deadline) {
  const std::string frame = encode(request);
  Backoff backoff;
  while (true) {
    if (auto connected = connect(deadline); !connected) return fail(connected.error());
    auto reply = exchange(frame, deadline);
    if (reply) return std::move(*reply);
    socket_.close();
    if (reply.error().code() == ErrorCode::kTimeout) return std::nullopt;
    // Lost: the server restarts, or what answers breaks the protocol.
    const Deadline pause = deadline_in(backoff.next());
    std::this_thread::sleep_until(std::min(pause, deadline));
    if (Clock::now() >= deadline) return fail(reply.error());
  }
}

Result<void> Client::connect(Deadline deadline) {
  if (socket_.valid()) return {};
  auto socket = dial(server_, secret_, hello_, deadline);
  if (!socket) return fail(socket.error());
  socket_ = std::move(*socket);
  keep_alive(socket_.fd());
  return {};
}

Result<Reply> Client::exchange(const std::string& frame, Deadline deadline) {
  if (auto sent = send_all(socket_, frame, deadline); !sent) return fail(sent.error());
  std::string head(kFrameHeadBytes, '\0');
  if (auto got = recv_all(socket_, head.data(), head.size(), deadline); !got) {
    return fail(got.error());
  }
  const auto length = frame_length(head);
  if (!length) return fail(ErrorCode::kPeerLost, "the answer is malformed");
  std::string body(*length, '\0');
  if (auto got = recv_all(socket_, body.data(), body.size(), deadline); !got) {
    return fail(got.error());
  }
  auto reply = decode_reply(body);
  if (!reply) return fail(ErrorCode::kPeerLost, "the answer is malformed");
  return std::move(*reply);
}

}  // namespace pushpull::tcp_store
