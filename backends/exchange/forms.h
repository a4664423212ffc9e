// The forms of the exchange. Each runs one call to its end; the parts are valid.
#pragma once

#include "backends/exchange/call.h"
#include "core/error.h"

namespace pushpull {

// See exchange.h. Groups of at least two ranks.
[[nodiscard]] Result<void> allreduce_small(ExchangeCall& call);
[[nodiscard]] Result<void> allreduce_direct(ExchangeCall& call);
[[nodiscard]] Result<void> allreduce_ring(ExchangeCall& call);

// Message by message down a tree: each rank passes on what it got. kChain: every rank has one
// child, so that each link carries everything once (bandwidth); kBinomial: log2(N) steps (latency).
enum class TreeShape { kChain, kBinomial };
[[nodiscard]] Result<void> broadcast_down(ExchangeCall& call, int root, TreeShape shape);

[[nodiscard]] Result<void> allgather_direct(PointToPoint& links, const void* in, void* out,
                                            std::span<const size_t> sizes);
// ceil(log2(N)) rounds of empty messages.
[[nodiscard]] Result<void> barrier_rounds(PointToPoint& links);

}  // namespace pushpull
