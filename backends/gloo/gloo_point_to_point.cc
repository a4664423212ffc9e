#include "backends/gloo/gloo_point_to_point.h"

#include <fmt/format.h>

namespace pushpull {
namespace {

// A ticket says which of the messages to or from a peer it was: they end in order.
constexpr int kPeerBits = 20;

PointToPoint::Ticket make_ticket(uint64_t count, int peer, bool is_send) {
  return count << (kPeerBits + 1) | static_cast<uint64_t>(peer) << 1 | (is_send ? 1 : 0);
}

int peer_of(PointToPoint::Ticket ticket) {
  return static_cast<int>(ticket >> 1 & ((1u << kPeerBits) - 1));
}

uint64_t count_of(PointToPoint::Ticket ticket) { return ticket >> (kPeerBits + 1); }

bool is_send(PointToPoint::Ticket ticket) { return (ticket & 1) != 0; }

}  // namespace

GlooPointToPoint::GlooPointToPoint(std::shared_ptr<GlooContext> context, Duration patience)
    : context_(std::move(context)),
      wire_(context_->wire()),
      patience_(patience),
      sends_(static_cast<size_t>(wire_.size())),
      recvs_(static_cast<size_t>(wire_.size())) {}

Result<PointToPoint::Ticket> GlooPointToPoint::send(int to, const void* from, size_t bytes) {
  uint64_t& count = sends_[static_cast<size_t>(to)];
  transport::SendOp op;
  op.header.slot = kSlots | count;
  op.header.length = bytes;
  op.from = static_cast<const char*>(from);
  if (auto ok = wire_.send(to, std::move(op)); !ok) return fail(ok.error());
  return make_ticket(++count, to, true);
}

Result<PointToPoint::Ticket> GlooPointToPoint::recv(int from, void* to, size_t bytes) {
  uint64_t& count = recvs_[static_cast<size_t>(from)];
  transport::RecvOp op;
  op.slot = kSlots | count;
  op.to = static_cast<char*>(to);
  op.length = bytes;
  if (auto ok = wire_.recv(from, std::move(op)); !ok) return fail(ok.error());
  return make_ticket(++count, from, false);
}

Result<void> GlooPointToPoint::wait(Ticket ticket) {
  const Deadline deadline = patience_ == Duration::zero() ? never() : deadline_in(patience_);
  const int peer = peer_of(ticket);
  auto ended = is_send(ticket) ? wire_.wait_sent(peer, count_of(ticket), deadline)
                               : wire_.wait_received(peer, count_of(ticket), deadline);
  if (!ended) return fail(ended.error());
  if (*ended) return {};
  Error error(ErrorCode::kTimeout,
              fmt::format("{} {} nothing for {} s", wire_.name(peer),
                          is_send(ticket) ? "took" : "sent",
                          std::chrono::duration_cast<std::chrono::seconds>(patience_).count()));
  error.at_rank(peer);
  abort(error);
  return fail(std::move(error));
}

Result<bool> GlooPointToPoint::test(Ticket ticket) {
  const int peer = peer_of(ticket);
  return is_send(ticket) ? wire_.test_sent(peer, count_of(ticket))
                         : wire_.test_received(peer, count_of(ticket));
}

void GlooPointToPoint::abort(const Error& reason) { wire_.abort(reason); }

}  // namespace pushpull
