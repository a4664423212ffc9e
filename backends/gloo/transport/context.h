// Gloo's transport context: the pairs and unbound buffers of one group, over one Wire.
#pragma once

#include <gloo/transport/context.h>

#include <memory>

#include "backends/gloo/transport/wire.h"

namespace pushpull::transport {

class Context : public gloo::transport::Context {
 public:
  explicit Context(std::unique_ptr<Wire> wire);
  // Pairs and buffers must be gone.
  ~Context() override;

  std::unique_ptr<gloo::transport::Pair>& createPair(int rank) override;
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* ptr,
                                                                      size_t size) override;

  Wire& wire() { return *wire_; }

 private:
  std::unique_ptr<Wire> wire_;
};

// The deadline that a timeout of Gloo's means; kUnsetTimeout is the context's own.
Deadline deadline_for(const gloo::transport::Context& context, std::chrono::milliseconds timeout);

}  // namespace pushpull::transport
