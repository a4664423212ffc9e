// Gloo's unbound buffers: memory that is sent to or received from any peer of the context.
#pragma once

#include <gloo/transport/unbound_buffer.h>

#include <deque>

#include "backends/gloo/transport/context.h"

namespace pushpull::transport {

class UnboundBuffer : public gloo::transport::UnboundBuffer, private Completion {
 public:
  UnboundBuffer(Context& context, void* memory, size_t bytes);
  ~UnboundBuffer() override;

  bool waitRecv(int* rank, std::chrono::milliseconds timeout) override;
  bool waitSend(int* rank, std::chrono::milliseconds timeout) override;
  void abortWaitRecv() override;
  void abortWaitSend() override;

  void send(int to, uint64_t slot, size_t offset, size_t bytes) override;
  void recv(int from, uint64_t slot, size_t offset, size_t bytes) override;
  void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t bytes) override;

 private:
  void sent(int peer) override { sent_.push_back(peer); }
  void received(int peer) override { received_.push_back(peer); }
  bool wait(std::deque<int>& ended, bool& aborted, int* rank, std::chrono::milliseconds timeout,
            const char* direction);
  // From `offset` to the end where `bytes` is not given.
  size_t length(size_t offset, size_t bytes) const;

  Context& context_;
  // Peers of operations that have ended and were not waited for. All four under the wire's lock.
  std::deque<int> sent_;
  std::deque<int> received_;
  bool abort_send_ = false;
  bool abort_recv_ = false;
};

}  // namespace pushpull::transport
