// A gloo::Context over connections that exist already. Gloo's own collectives run on it.
#pragma once

#include <gloo/context.h>

#include <memory>

#include "backends/gloo/transport/context.h"
#include "backends/gloo/transport/device.h"

namespace pushpull {

class GlooContext : public gloo::Context {
 public:
  // Throws gloo::Exception where the device has no connections for it.
  GlooContext(int own_rank, int ranks, const std::shared_ptr<transport::Device>& device)
      : gloo::Context(own_rank, ranks) {
    device_ = device;
    transportContext_ = device->createContext(own_rank, ranks);
  }

  transport::Wire& wire() {
    return static_cast<transport::Context&>(*transportContext_).wire();
  }
};

}  // namespace pushpull
