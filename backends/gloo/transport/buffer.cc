#include "backends/gloo/transport/buffer.h"

#include <gloo/common/error.h>

#include "backends/gloo/transport/exception.h"

namespace pushpull::transport {
namespace {

// Waits until `count` is not 0, and takes one.
void take_one(Context& context, int& count, int peer, const char* direction) {
  Wire& wire = context.wire();
  const auto ready = [&count] {
    if (count == 0) return false;
    --count;
    return true;
  };
  const Deadline deadline = deadline_for(context, gloo::transport::kUnsetTimeout);
  if (!value_or_throw(wire.wait(ready, deadline)))
    throw gloo::IoException(std::string("timed out ") + direction + " " + wire.name(peer));
}

[[noreturn]] void wrong_side() {
  throw gloo::InvalidOperationException("a bound buffer goes in one direction only");
}

}  // namespace

SendBuffer::SendBuffer(Context& context, int peer, int slot, void* ptr, size_t size)
    : gloo::transport::Buffer(slot, ptr, size), context_(context), peer_(peer) {}

SendBuffer::~SendBuffer() { context_.wire().forget(this); }

void SendBuffer::send(size_t offset, size_t length, size_t remote_offset) {
  if (offset > size_ || length > size_ - offset)
    throw gloo::InvalidOperationException("sending beyond the end of a buffer");
  SendOp op;
  op.header.slot = static_cast<uint64_t>(slot_);
  op.header.length = length;
  op.header.offset = remote_offset;
  op.from = static_cast<const char*>(ptr_) + offset;
  op.completion = this;
  check_or_throw(context_.wire().send(peer_, std::move(op)));
}

void SendBuffer::waitSend() { take_one(context_, sent_, peer_, "sending to"); }

void SendBuffer::waitRecv() { wrong_side(); }

RecvBuffer::RecvBuffer(Context& context, int peer, int slot, void* ptr, size_t size)
    : gloo::transport::Buffer(slot, ptr, size), context_(context), peer_(peer) {
  check_or_throw(context.wire().add_target(peer, static_cast<uint64_t>(slot),
                                           {static_cast<char*>(ptr), size, this}));
}

RecvBuffer::~RecvBuffer() { context_.wire().forget(this); }

void RecvBuffer::send(size_t, size_t, size_t) { wrong_side(); }

void RecvBuffer::waitRecv() { take_one(context_, received_, peer_, "receiving from"); }

void RecvBuffer::waitSend() { wrong_side(); }

}  // namespace pushpull::transport
