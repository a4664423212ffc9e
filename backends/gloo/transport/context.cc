#include "backends/gloo/transport/context.h"

#include <gloo/common/error.h>

#include "backends/gloo/transport/pair.h"
#include "backends/gloo/transport/unbound_buffer.h"

namespace pushpull::transport {

Context::Context(std::unique_ptr<Wire> wire)
    : gloo::transport::Context(wire->rank(), wire->size()), wire_(std::move(wire)) {
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank) createPair(peer);
}

Context::~Context() {
  pairs_.clear();  // before the wire they are made of
}

std::unique_ptr<gloo::transport::Pair>& Context::createPair(int peer) {
  auto& pair = pairs_.at(static_cast<size_t>(peer));
  if (pair == nullptr) pair = std::make_unique<Pair>(*this, peer);
  return pair;
}

std::unique_ptr<gloo::transport::UnboundBuffer> Context::createUnboundBuffer(void* ptr,
                                                                             size_t bytes) {
  return std::make_unique<UnboundBuffer>(*this, ptr, bytes);
}

Deadline deadline_for(const gloo::transport::Context& context, std::chrono::milliseconds timeout) {
  if (timeout == gloo::transport::kUnsetTimeout) timeout = context.getTimeout();
  return timeout == gloo::kNoTimeout ? never() : deadline_in(timeout);
}

}  // namespace pushpull::transport
