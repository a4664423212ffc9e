// A Collective of ranks that share memory.
//
// A call's parts are one stream of chunks (see shm_plan.h), and every rank has a ring of slots that
// are reused so soon that they stay in the cache. Three stages run over the chunks, each two chunks
// behind the one before:
//
//   put     copies what others need of this rank's inputs to its slot
//   reduce  sums this rank's share of the chunk, from the others' slots and from its own memory
//           into its own memory, and copies the sum to its slot
//   finish  copies the sums of the others' shares out of their slots
//
// Two ranks, and chunks of a few KiB, have no shares: each rank puts everything, and sums
// everything itself in the last stage. That is one exchange less, and for two ranks nothing is done
// twice.
//
// Order of summation and rounding are those of backends/exchange: slice s of a tensor is summed
// s+1, s+2, ..., s (mod N), 16-bit floats in float32 with one rounding, scales round to the type.
// So `local: shm` and `local: backend` give the same bits, whatever the size of chunks.
#pragma once

#include <memory>

#include "backends/shm/shm_segment.h"
#include "core/collective.h"
#include "core/group.h"
#include "core/settings.h"

namespace pushpull {

// Calls may follow at once.
std::unique_ptr<Collective> make_shm_collective(std::shared_ptr<const ShmSegment> segment,
                                                const Group& group, const Settings& settings);

}  // namespace pushpull
