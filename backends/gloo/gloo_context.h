// A gloo::Context over connections that exist already. Gloo's own collectives run on it.
#pragma once

#include <gloo/context.h>

#include <chrono>
#include <memory>

#include "backends/gloo/transport/context.h"
#include "backends/gloo/transport/device.h"

namespace pushpull {

class GlooContext : public gloo::Context {
 public:
  // `timeout` is that of Gloo's collectives. Throws gloo::Exception where the device has no
  // connections for it.
  GlooContext(int own_rank, int ranks, const std::shared_ptr<transport::Device>& device,
              std::chrono::milliseconds timeout)
      : gloo::Context(own_rank, ranks) {
    device_ = device;
    transportContext_ = device->createContext(own_rank, ranks);
    setTimeout(timeout);
    transportContext_->setTimeout(timeout);
  }

  transport::Wire& wire() { return static_cast<transport::Context&>(*transportContext_).wire(); }
};

}  // namespace pushpull
