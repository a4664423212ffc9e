// One peer, as Gloo's older algorithms see it.
#pragma once

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>

#include <string>
#include <vector>

#include "backends/gloo/transport/context.h"

namespace pushpull::transport {

class Address : public gloo::transport::Address {
 public:
  explicit Address(std::string name) : name_(std::move(name)) {}
  std::string str() const override { return name_; }
  std::vector<char> bytes() const override { return {name_.begin(), name_.end()}; }

 private:
  std::string name_;
};

class Pair : public gloo::transport::Pair {
 public:
  Pair(Context& context, int peer);

  const gloo::transport::Address& address() const override { return address_; }
  // It is connected from the start; there is nothing that it could be connected to instead.
  void connect(const std::vector<char>& bytes) override;
  void close() override;
  // Waiting threads do the work themselves: every pair is as Gloo's synchronous ones are.
  void setSync(bool enable, bool busy_poll) override;

  std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int slot, void* ptr,
                                                            size_t size) override;
  std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int slot, void* ptr,
                                                            size_t size) override;

  void send(gloo::transport::UnboundBuffer* buffer, uint64_t slot, size_t offset,
            size_t bytes) override;
  void recv(gloo::transport::UnboundBuffer* buffer, uint64_t slot, size_t offset,
            size_t bytes) override;

 private:
  Context& context_;
  const int peer_;
  Address address_;
};

}  // namespace pushpull::transport
