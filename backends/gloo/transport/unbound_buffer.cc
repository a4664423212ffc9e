#include "backends/gloo/transport/unbound_buffer.h"

#include <gloo/common/error.h>

#include "backends/gloo/transport/exception.h"

namespace pushpull::transport {

UnboundBuffer::UnboundBuffer(Context& context, void* memory, size_t bytes)
    : gloo::transport::UnboundBuffer(memory, bytes), context_(context) {}

UnboundBuffer::~UnboundBuffer() { context_.wire().forget(this); }

size_t UnboundBuffer::length(size_t offset, size_t bytes) const {
  if (bytes == 0) return 0;  // Gloo asks for nothing at places beyond the end
  if (offset > size) throw gloo::InvalidOperationException("an offset beyond the end of a buffer");
  if (bytes == kUnspecifiedByteCount) return size - offset;
  if (bytes > size - offset)
    throw gloo::InvalidOperationException("a length beyond the end of a buffer");
  return bytes;
}

void UnboundBuffer::send(int to, uint64_t slot, size_t offset, size_t bytes) {
  SendOp op;
  op.header.slot = slot;
  op.header.length = length(offset, bytes);
  op.from = static_cast<const char*>(ptr) + offset;
  op.completion = this;
  check_or_throw(context_.wire().send(to, std::move(op)));
}

void UnboundBuffer::recv(int from, uint64_t slot, size_t offset, size_t bytes) {
  RecvOp op;
  op.slot = slot;
  op.to = static_cast<char*>(ptr) + offset;
  op.length = length(offset, bytes);
  op.completion = this;
  check_or_throw(context_.wire().recv(from, std::move(op)));
}

void UnboundBuffer::recv(std::vector<int> from, uint64_t slot, size_t offset, size_t bytes) {
  RecvOp op;
  op.slot = slot;
  op.to = static_cast<char*>(ptr) + offset;
  op.length = length(offset, bytes);
  op.completion = this;
  check_or_throw(context_.wire().recv_any(from, std::move(op)));
}

bool UnboundBuffer::wait(std::deque<int>& ended, bool& aborted, int* rank,
                         std::chrono::milliseconds timeout, const char* direction) {
  bool stopped = false;
  const auto ready = [&] {
    if (ended.empty()) {
      stopped = aborted;
      aborted = false;
      return stopped;
    }
    if (rank != nullptr) *rank = ended.front();
    ended.pop_front();
    return true;
  };
  if (!value_or_throw(context_.wire().wait(ready, deadline_for(context_, timeout))))
    throw gloo::IoException(std::string("timed out ") + direction);
  return !stopped;
}

bool UnboundBuffer::waitRecv(int* rank, std::chrono::milliseconds timeout) {
  return wait(received_, abort_recv_, rank, timeout, "receiving");
}

bool UnboundBuffer::waitSend(int* rank, std::chrono::milliseconds timeout) {
  return wait(sent_, abort_send_, rank, timeout, "sending");
}

void UnboundBuffer::abortWaitRecv() {
  context_.wire().change([this] { abort_recv_ = true; });
}

void UnboundBuffer::abortWaitSend() {
  context_.wire().change([this] { abort_send_ = true; });
}

}  // namespace pushpull::transport
