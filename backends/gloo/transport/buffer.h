// Gloo's bound buffers: memory on one side that the other side writes into, matched by slot.
#pragma once

#include <gloo/transport/buffer.h>

#include "backends/gloo/transport/context.h"

namespace pushpull::transport {

class SendBuffer : public gloo::transport::Buffer, private Completion {
 public:
  SendBuffer(Context& context, int peer, int slot, void* ptr, size_t size);
  ~SendBuffer() override;

  void send(size_t offset, size_t length, size_t remote_offset) override;
  void waitRecv() override;
  void waitSend() override;

 private:
  void sent(int) override { ++sent_; }
  void received(int) override {}

  Context& context_;
  const int peer_;
  int sent_ = 0;  // and not waited for; under the wire's lock
};

class RecvBuffer : public gloo::transport::Buffer, private Completion {
 public:
  RecvBuffer(Context& context, int peer, int slot, void* ptr, size_t size);
  ~RecvBuffer() override;

  void send(size_t offset, size_t length, size_t remote_offset) override;
  void waitRecv() override;
  void waitSend() override;

 private:
  void sent(int) override {}
  void received(int) override { ++received_; }

  Context& context_;
  const int peer_;
  int received_ = 0;  // and not waited for; under the wire's lock
};

}  // namespace pushpull::transport
