// Moving bytes between two ranks of a group: what the exchange needs of Gloo or MPI.
//
// Messages between two ranks match in order: a rank's n-th recv from a peer takes that peer's n-th
// send to it, and both have the same length. Any number may be under way. One thread at a time;
// only abort() may come from another. Waiting makes progress on everything that was started.
//
// The memory given to send and recv stays valid and untouched until wait() returned for its ticket.
// Once any function has returned an error or abort() was called and the call in progress has
// returned, nothing given to this object is read or written any more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/error.h"

namespace pushpull {

class PointToPoint {
 public:
  using Ticket = uint64_t;

  virtual ~PointToPoint() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  [[nodiscard]] virtual Result<Ticket> send(int to, const void* from, size_t bytes) = 0;
  [[nodiscard]] virtual Result<Ticket> recv(int from, void* to, size_t bytes) = 0;

  // Blocks until the message has been taken over or has arrived. PeerLost errors name the rank.
  [[nodiscard]] virtual Result<void> wait(Ticket ticket) = 0;
  // Makes what progress is possible without blocking; true where wait() would return at once.
  [[nodiscard]] virtual Result<bool> test(Ticket ticket) = 0;

  // Makes every later call, and one that blocks, return `reason` soon. Any thread; the first stays.
  virtual void abort(const Error& reason) = 0;
};

}  // namespace pushpull
