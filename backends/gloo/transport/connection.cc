#include "backends/gloo/transport/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace pushpull::transport {

static_assert(sizeof(Header) == 64 && std::endian::native == std::endian::little);

namespace {

constexpr size_t kMaxVectors = 16;
constexpr size_t kMaxSwallowed = size_t{4} << 20;

}  // namespace

// --- sending ---------------------------------------------------------------------------------------

Result<void> Connection::send(SendOp op) {
  outgoing_.push_back(std::move(op));
  if (outgoing_.size() > 1 || !writable_) return {};
  auto moved = write_some();
  if (!moved) return fail(moved.error());
  return {};
}

Result<bool> Connection::write_some() {
  bool moved = false;
  while (writable_ && !outgoing_.empty()) {
    std::array<iovec, kMaxVectors> vectors;
    size_t used = 0;
    size_t bytes = 0;
    for (SendOp& op : outgoing_) {
      if (used + 2 > kMaxVectors) break;
      const size_t header_done = std::min(op.written, sizeof(Header));
      const size_t body_done = op.written - header_done;
      if (header_done < sizeof(Header))
        vectors[used++] = {reinterpret_cast<char*>(&op.header) + header_done,
                           sizeof(Header) - header_done};
      if (body_done < op.header.length)
        vectors[used++] = {const_cast<char*>(op.from) + body_done, op.header.length - body_done};
      bytes += sizeof(Header) + op.header.length - op.written;
    }
    msghdr message{};
    message.msg_iov = vectors.data();
    message.msg_iovlen = used;
    const ssize_t n = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return fail(lost("sending", errno).error());
      writable_ = false;
      break;
    }
    moved = true;
    if (static_cast<size_t>(n) < bytes) writable_ = false;
    written(static_cast<size_t>(n));
  }
  return moved;
}

void Connection::written(size_t bytes) {
  while (!outgoing_.empty()) {
    SendOp& op = outgoing_.front();
    const size_t whole = sizeof(Header) + op.header.length;
    const size_t take = std::min(bytes, whole - op.written);
    op.written += take;
    bytes -= take;
    if (op.written < whole) return;
    if (op.completion != nullptr)
      op.completion->sent(peer_);
    else if (op.owned == nullptr)
      ++sent_;
    outgoing_.pop_front();
  }
}

// --- receiving -------------------------------------------------------------------------------------

Result<void> Connection::recv(RecvOp op) {
  if (op.taken && *op.taken) return {};
  const auto found = std::find_if(aside_.begin(), aside_.end(),
                                  [&](const Aside& a) { return a.slot == op.slot; });
  if (found != aside_.end()) {
    if (found->length != op.length) return confused("length", found->length, op.length);
    if (op.length != 0) std::memcpy(op.to, found->bytes.get(), op.length);
    aside_bytes_ -= found->length;
    aside_.erase(found);
    delivered(op);
    return {};
  }
  posted_.push_back(std::move(op));
  if (parked_) return consume();
  return {};
}

Result<void> Connection::add_target(uint64_t slot, const Target& target) {
  targets_[slot] = target;
  if (parked_) return consume();
  return {};
}

std::deque<RecvOp>::iterator Connection::find_posted(uint64_t slot) {
  for (auto it = posted_.begin(); it != posted_.end();) {
    if (it->taken && *it->taken)
      it = posted_.erase(it);
    else if (it->slot == slot)
      return it;
    else
      ++it;
  }
  return posted_.end();
}

void Connection::delivered(const RecvOp& op) {
  if (op.completion != nullptr)
    op.completion->received(peer_);
  else
    ++received_;
  if (op.taken) *op.taken = true;
}

bool Connection::wants_read() const {
  if (in_body_) return true;
  return !parked_ && (!posted_.empty() || !targets_.empty());
}

Result<bool> Connection::read_some() {
  bool moved = false;
  while (readable_ && wants_read()) {
    std::array<iovec, 2> vectors;
    size_t used = 0;
    size_t bytes = 0;
    if (in_body_ && into_ != nullptr) {
      vectors[used++] = {into_, missing_};
      bytes += missing_;
    }
    if (ahead_begin_ == ahead_end_) ahead_begin_ = ahead_end_ = 0;
    vectors[used++] = {ahead_.data() + ahead_end_, ahead_.size() - ahead_end_};
    bytes += ahead_.size() - ahead_end_;
    const ssize_t n = ::readv(fd(), vectors.data(), static_cast<int>(used));
    if (n == 0) return fail(lost("closed", 0).error());
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return fail(lost("receiving", errno).error());
      readable_ = false;
      break;
    }
    moved = true;
    if (static_cast<size_t>(n) < bytes) readable_ = false;
    arrived(static_cast<size_t>(n));
    if (auto ok = consume(); !ok) return fail(ok.error());
  }
  return moved;
}

void Connection::arrived(size_t bytes) {
  if (in_body_ && into_ != nullptr) {
    const size_t direct = std::min(bytes, missing_);
    into_ += direct;
    missing_ -= direct;
    bytes -= direct;
  }
  ahead_end_ += bytes;
}

Result<void> Connection::consume() {
  for (;;) {
    const size_t here = ahead_end_ - ahead_begin_;
    if (in_body_) {
      const size_t take = std::min(here, missing_);
      if (into_ != nullptr && take != 0) {
        std::memcpy(into_, ahead_.data() + ahead_begin_, take);
        into_ += take;
      }
      ahead_begin_ += take;
      missing_ -= take;
      if (missing_ != 0) return {};
      finish_message();
      continue;
    }
    if (here < sizeof(Header)) {
      // Room for the rest of it, should it sit at the end of the space.
      std::memmove(ahead_.data(), ahead_.data() + ahead_begin_, here);
      ahead_begin_ = 0;
      ahead_end_ = here;
      return {};
    }
    Header header;
    std::memcpy(&header, ahead_.data() + ahead_begin_, sizeof(Header));
    auto started = start_message(header);
    if (!started) return fail(started.error());
    parked_ = !*started;
    if (parked_) return {};
    ahead_begin_ += sizeof(Header);
  }
}

Result<bool> Connection::start_message(const Header& header) {
  if (header.magic != kMagic) return fail(confused("mark", header.magic, kMagic).error());
  if (header.offset != kNoOffset) {
    if (!targets_.contains(header.slot)) return false;
    if (auto ok = start_target(header); !ok) return fail(ok.error());
  } else if (const auto found = find_posted(header.slot); found != posted_.end()) {
    if (found->length != header.length)
      return fail(confused("length", header.length, found->length).error());
    body_ = Body::kReceive;
    current_ = std::move(*found);
    posted_.erase(found);
    // From now on this peer's message is the one, whichever others were asked too.
    if (current_.taken) *current_.taken = true;
    into_ = current_.to;
  } else if (posted_.empty() && targets_.empty()) {
    return false;
  } else if (auto ok = start_aside(header); !ok) {
    return fail(ok.error());
  }
  in_body_ = true;
  missing_ = header.length;
  return true;
}

Result<void> Connection::start_target(const Header& header) {
  const Target& target = targets_.at(header.slot);
  if (header.offset > target.length || header.length > target.length - header.offset)
    return confused("end", header.offset + header.length, target.length);
  body_ = Body::kTarget;
  target_completion_ = target.completion;
  into_ = target.memory + header.offset;
  return {};
}

Result<void> Connection::start_aside(const Header& header) {
  if (header.length > kMaxAside - aside_bytes_)
    return confused("unexpected length", header.length, kMaxAside - aside_bytes_);
  body_ = Body::kAside;
  current_aside_ = {header.slot, header.length, std::make_unique<char[]>(header.length)};
  aside_bytes_ += header.length;
  into_ = current_aside_.bytes.get();
  return {};
}

void Connection::finish_message() {
  in_body_ = false;
  into_ = nullptr;
  switch (body_) {
    case Body::kReceive:
      delivered(current_);
      current_ = {};
      return;
    case Body::kTarget:
      target_completion_->received(peer_);
      return;
    case Body::kDiscard:
      return;
    case Body::kAside:
      break;
  }
  // Its receive may have been posted while it came in.
  const auto found = find_posted(current_aside_.slot);
  if (found == posted_.end() || found->length != current_aside_.length) {
    aside_.push_back(std::move(current_aside_));
    return;
  }
  if (found->length != 0) std::memcpy(found->to, current_aside_.bytes.get(), found->length);
  aside_bytes_ -= found->length;
  const RecvOp op = std::move(*found);
  posted_.erase(found);
  delivered(op);
}

// --- both ------------------------------------------------------------------------------------------

Result<bool> Connection::progress() {
  bool moved = false;
  if (writable_ && !outgoing_.empty()) {
    auto wrote = write_some();
    if (!wrote) return wrote;
    moved = *wrote;
  }
  if (readable_ && wants_read()) {
    auto read = read_some();
    if (!read) return read;
    moved = moved || *read;
  }
  return moved;
}

void Connection::forget(const Completion* completion) {
  std::erase_if(posted_, [&](const RecvOp& op) { return op.completion == completion; });
  std::erase_if(targets_, [&](const auto& t) { return t.second.completion == completion; });
  if (in_body_ && ((body_ == Body::kReceive && current_.completion == completion) ||
                   (body_ == Body::kTarget && target_completion_ == completion))) {
    body_ = Body::kDiscard;
    into_ = nullptr;
    current_ = {};
  }
  for (SendOp& op : outgoing_) {
    if (op.completion != completion) continue;
    // The peer waits for it.
    op.owned = std::make_unique<char[]>(op.header.length);
    if (op.header.length != 0) std::memcpy(op.owned.get(), op.from, op.header.length);
    op.from = op.owned.get();
    op.completion = nullptr;
  }
}

void Connection::clear() {
  outgoing_.clear();
  posted_.clear();
  targets_.clear();
  aside_.clear();
  aside_bytes_ = 0;
  in_body_ = false;
  into_ = nullptr;
  current_ = {};
}

void Connection::finish() {
  ::shutdown(fd(), SHUT_WR);
  // A peer that goes on sending is not in good order, and a reset is what it should get.
  for (size_t swallowed = 0; swallowed < kMaxSwallowed; swallowed += ahead_.size())
    if (::recv(fd(), ahead_.data(), ahead_.size(), MSG_DONTWAIT) <= 0) return;
}

Result<void> Connection::lost(const char* what, int error_number) const {
  Error error(ErrorCode::kPeerLost, error_number == 0
                                        ? fmt::format("it {} its connection", what)
                                        : fmt::format("{} failed: {}", what, errno_text(error_number)));
  error.at_rank(peer_);
  return fail(std::move(error));
}

Result<void> Connection::confused(const char* what, uint64_t got, uint64_t expected) const {
  Error error(ErrorCode::kAborted,
              fmt::format("its message has {} {} where {} was expected", what, got, expected));
  error.at_rank(peer_);
  return fail(std::move(error));
}

}  // namespace pushpull::transport
