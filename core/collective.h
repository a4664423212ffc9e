// What a backend does: exchange tensors among the ranks of one group.
//
// A Collective is connected to all ranks of its group. Core calls it from one thread at a
// time (not always the same one), in the same order and with the same arguments on every rank: the
// control plane sees to that. Only abort() may come while another call is in progress.
//
// Errors: PeerLost or Timeout where the backend itself noticed something (evidence; the coordinator
// has the last word), Aborted after abort(). After any error the collective is broken: later calls
// fail, only abort() and the destructor remain. Arguments are checked once by CheckedCollective;
// implementations may assume that they are valid.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/dtype.h"
#include "core/error.h"

namespace pushpull {

// Elements per slice when a tensor of `total` elements is cut into `ranks` slices. Slice s holds the
// elements [s*L, (s+1)*L) that exist. L is a multiple of 16 elements so that slices start on vector
// boundaries; the last slices of a small tensor may be short or empty.
size_t slice_length(size_t total, int ranks);

// A piece of one tensor. `in` and `out` point to the tensor's first element and may be equal (in
// place); otherwise they do not overlap. `total` is the element count of the whole tensor.
//
// allreduce: the piece is the elements [begin, end) of *each* slice, so that the order of summation
//   of an element depends on the tensor alone and never on how it was cut or fused.
//   A whole tensor has begin = 0, end = slice_length(total, size). Where `slice` says how long
//   slices are, there are as many as the tensor fills, at most one per rank.
// broadcast: the piece is the elements [begin, end) of the tensor itself; the whole: 0, total.
//   `in` is read on the root only, `out` is written on every rank (the root copies where they differ).
//
// Both pointers stay valid until the call returns, even where it returns an error.
struct Part {
  const void* in = nullptr;
  void* out = nullptr;
  DType dtype = DType::kFloat32;
  size_t total = 0;
  size_t begin = 0;
  size_t end = 0;
  size_t slice = 0;  // allreduce: elements per slice, a multiple of 16 or `total`; 0: the usual ones
  // Where not null, `in` may be read only once this is not 0. Set for exchanges between hosts alone,
  // which start before the sum of a host is there.
  const std::atomic<uint32_t>* ready = nullptr;

  void await_input() const {
    if (ready != nullptr) ready->wait(0, std::memory_order_acquire);
  }
};
// slice_length() unless the part says otherwise.
size_t slice_length(const Part& part, int ranks);

// out = postscale * sum over ranks of (prescale * in). Scales are applied in float32 for float16,
// bfloat16 and float32, in float64 for float64; for integer types both must be 1.
struct Reduce {
  double prescale = 1.0;
  double postscale = 1.0;
  friend bool operator==(const Reduce&, const Reduce&) = default;
};

// done(i): parts[i].out holds its result (and its memory is no longer touched). Called on the
// calling thread, once per part, in any order, before the call returns success.
using PartDone = std::function<void(size_t)>;

class Collective {
 public:
  virtual ~Collective() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The same bits on every rank. A list of parts may mix dtypes.
  [[nodiscard]] virtual Result<void> allreduce(std::span<const Part> parts, const Reduce& reduce,
                                               const PartDone& done) = 0;

  [[nodiscard]] virtual Result<void> broadcast(std::span<const Part> parts, int root,
                                               const PartDone& done) = 0;

  // Bytes of every rank, one after the other by rank, into `out`. `sizes[r]` is rank r's length in
  // bytes and known to all; `in` has sizes[rank()] bytes, `out` their sum.
  [[nodiscard]] virtual Result<void> allgather(const void* in, void* out,
                                               std::span<const size_t> sizes) = 0;

  // Returns when every rank has called it.
  [[nodiscard]] virtual Result<void> barrier() = 0;

  // Makes the call in progress, and every later one, return `reason` soon (well under a second).
  // Any thread; does not block; the first reason stays.
  virtual void abort(const Error& reason) = 0;
};

}  // namespace pushpull
