#include "backends/gloo/transport/device.h"

#include "backends/gloo/transport/context.h"
#include "backends/gloo/transport/exception.h"

namespace pushpull::transport {

Device::Device(std::vector<Socket> sockets, std::vector<Peer> peers)
    : sockets_(std::move(sockets)), peers_(std::move(peers)) {}

std::string Device::str() const { return "pushpull"; }

const std::string& Device::getPCIBusID() const { return bus_; }

std::shared_ptr<gloo::transport::Context> Device::createContext(int rank, int size) {
  if (sockets_.size() != static_cast<size_t>(size))
    throw gloo::InvalidOperationException("this device has no connections for such a context");
  auto wire = value_or_throw(Wire::create(rank, std::move(sockets_), peers_));
  sockets_.clear();
  return std::make_shared<Context>(std::move(wire));
}

}  // namespace pushpull::transport
