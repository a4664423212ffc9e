// One call of an exchange while it runs: what all forms need.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backends/exchange/buffer_pool.h"
#include "backends/exchange/plan.h"
#include "backends/exchange/point_to_point.h"
#include "core/collective.h"

namespace pushpull {

// How the sum of several inputs rounds, for types where that makes a difference.
enum class Rounding { kOnce, kEachAddition };

// Memory that lives from call to call.
struct Workspace {
  BufferPool pool;
  std::vector<Stream> streams;          // one per slice, or one
  std::vector<uint32_t> open_segments;  // per part
  std::vector<const void*> inputs;
};

// Calls done(i) when all segments of part i have ended.
class ExchangeCall {
 public:
  using Ticket = PointToPoint::Ticket;

  ExchangeCall(PointToPoint& point_to_point, Workspace& workspace, std::span<const Part> the_parts,
               const PartDone& part_done)
      : links(point_to_point), work(workspace), parts(the_parts), done_(part_done) {}

  PointToPoint& links;
  Workspace& work;
  const std::span<const Part> parts;
  Reduce reduce;
  Rounding rounding = Rounding::kOnce;
  size_t chunk_bytes = 0;

  int rank() const { return links.rank(); }
  int size() const { return links.size(); }
  // The rank `steps` further on, around the ring; may be negative.
  int peer(int steps) const { return ((rank() + steps) % size() + size()) % size(); }

  // Counts the segments of the workspace's streams and prepares the pool for their messages. Parts
  // without a segment are done.
  void begin();
  // All segments of a message have ended: their memory is free and holds the result.
  void ended(const Stream& stream, const Message& message);

  // Where a segment begins; the input once it is there.
  const char* in(const Segment& segment) const;
  char* out(const Segment& segment) const;
  DType dtype(const Segment& segment) const { return parts[segment.part].dtype; }
  size_t bytes(const Segment& segment) const { return segment.count * size_of(dtype(segment)); }

  // Copies inputs, scaled by prescale, or outputs into a message, and a message into outputs.
  void pack_inputs(const Stream& stream, const Message& message, char* to) const;
  void pack_outputs(const Stream& stream, const Message& message, char* to) const;
  void unpack_outputs(const Stream& stream, const Message& message, const char* from) const;

  // What to send as this rank's own input: the tensor's memory, or `buffer`, which is taken from
  // the pool, where it has to be packed or scaled.
  const char* own_input(const Stream& stream, const Message& message, char*& buffer);
  // What to send as results: the tensor's memory, or `buffer`.
  const char* own_output(const Stream& stream, const Message& message, char*& buffer);
  // Where to receive results: the tensor's memory, or `buffer`.
  char* output_place(const Stream& stream, const Message& message, char*& buffer);

  // outputs = postscale * (inputs of the other ranks, in this order, then this rank's own), where
  // `others` are messages laid out like `message`.
  void sum(const Stream& stream, const Message& message, std::span<const char* const> others);
  // partial = partial + this rank's own input.
  void add_own(const Stream& stream, const Message& message, char* partial);
  // out = sum of inputs in their order.
  void combine(DType dtype, void* out, std::span<const void* const> inputs, size_t count) const;
  void scale_output(const Segment& segment) const;

 private:
  const PartDone& done_;
};

}  // namespace pushpull
