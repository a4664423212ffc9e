// The factory of Gloo's transport interface, over sockets that are connected already.
#pragma once

#include <gloo/transport/device.h>

#include <memory>
#include <string>
#include <vector>

#include "backends/gloo/transport/wire.h"
#include "core/net/socket.h"

namespace pushpull::transport {

class Device : public gloo::transport::Device {
 public:
  // sockets[r] is connected to rank r, non-blocking.
  Device(std::vector<Socket> sockets, std::vector<Peer> peers);

  std::string str() const override;
  const std::string& getPCIBusID() const override;
  // Once: the sockets go to that context. Throws gloo::Exception, as Gloo's interface wants.
  std::shared_ptr<gloo::transport::Context> createContext(int rank, int size) override;

 private:
  std::vector<Socket> sockets_;
  std::vector<Peer> peers_;
  std::string bus_;
};

}  // namespace pushpull::transport
