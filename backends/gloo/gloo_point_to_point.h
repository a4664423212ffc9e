// The exchange's messages over a Gloo context of ours.
//
// Takes the transport's own operations rather than one unbound buffer per message: those cost an
// allocation each, can only be waited for one by one, and speak in exceptions. The n-th message to
// a peer has slot kSlots + n, apart from all slots that Gloo's collectives use.
#pragma once

#include <memory>
#include <vector>

#include "backends/exchange/point_to_point.h"
#include "backends/gloo/gloo_context.h"
#include "core/deadline.h"

namespace pushpull {

class GlooPointToPoint : public PointToPoint {
 public:
  // `patience`: how long one wait() may take; 0: until abort().
  GlooPointToPoint(std::shared_ptr<GlooContext> context, Duration patience);

  int rank() const override { return wire_.rank(); }
  int size() const override { return wire_.size(); }
  Result<Ticket> send(int to, const void* from, size_t bytes) override;
  Result<Ticket> recv(int from, void* to, size_t bytes) override;
  Result<void> wait(Ticket ticket) override;
  Result<bool> test(Ticket ticket) override;
  void abort(const Error& reason) override;

 private:
  static constexpr uint64_t kSlots = uint64_t{0xff} << 56;

  std::shared_ptr<GlooContext> context_;
  transport::Wire& wire_;
  const Duration patience_;
  std::vector<uint64_t> sends_;  // started so far, per peer
  std::vector<uint64_t> recvs_;
};

}  // namespace pushpull
