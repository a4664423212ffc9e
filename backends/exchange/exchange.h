// A Collective made of point-to-point messages: the exchange across hosts, whatever carries it.
//
// Every tensor is cut into one slice per rank (slice_length()). Slice s is summed in the order
// s+1, s+2, ..., s (mod N), so rank s adds last, holds the result and shares it. Three forms move
// the bytes; all of them add in this order:
//
//   small   one step: everybody sends everything to everybody, each rank sums everything itself
//   direct  two steps: each rank sends every slice to its owner, the owner sums and sends to all
//   ring    2(N-1) steps: partial sums travel around, then the results do
//
// The slices of all parts of a call are one stream of messages of at most `chunk_bytes`: small
// parts share a message, large ones go out of and into the tensor's own memory.
//
// Rounding. float32, float64 and integer types: each addition rounds (or wraps) to the type, so the
// three forms give the same bits and the choice is free. float16 and bfloat16: with `exchange` auto
// or direct the sum is made in float32 and rounded once; with `exchange: ring` it is rounded after
// each addition. Scales round to the type, before (prescale, on each input) and after (postscale).
// Neither depends on what a call holds besides, or on the size of a chunk.
#pragma once

#include <memory>

#include "backends/exchange/point_to_point.h"
#include "core/collective.h"
#include "core/settings.h"

namespace pushpull {

// Reads `exchange` ("ring", "direct"; anything else: auto) and `chunk_bytes` of the settings, which
// must be the same on every rank. Arguments of calls must be valid (see core/checked_collective.h).
std::unique_ptr<Collective> make_exchange(std::unique_ptr<PointToPoint> links,
                                          const Settings& settings);

}  // namespace pushpull
