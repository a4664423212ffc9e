#include "backends/gloo/transport/pair.h"

#include <gloo/common/error.h>

#include "backends/gloo/transport/buffer.h"

namespace pushpull::transport {

Pair::Pair(Context& context, int peer)
    : context_(context), peer_(peer), address_(context.wire().name(peer)) {}

void Pair::connect(const std::vector<char>&) {
  throw gloo::InvalidOperationException("the pairs of this transport are connected already");
}

void Pair::close() { context_.wire().finish(peer_); }

void Pair::setSync(bool, bool) {}

std::unique_ptr<gloo::transport::Buffer> Pair::createSendBuffer(int slot, void* ptr, size_t size) {
  return std::make_unique<SendBuffer>(context_, peer_, slot, ptr, size);
}

std::unique_ptr<gloo::transport::Buffer> Pair::createRecvBuffer(int slot, void* ptr, size_t size) {
  return std::make_unique<RecvBuffer>(context_, peer_, slot, ptr, size);
}

void Pair::send(gloo::transport::UnboundBuffer* buffer, uint64_t slot, size_t offset,
                size_t bytes) {
  buffer->send(peer_, slot, offset, bytes);
}

void Pair::recv(gloo::transport::UnboundBuffer* buffer, uint64_t slot, size_t offset,
                size_t bytes) {
  buffer->recv(peer_, slot, offset, bytes);
}

}  // namespace pushpull::transport
