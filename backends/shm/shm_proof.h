// How ranks come to share memory, and prove that they do.
//
// The group's first rank makes the memory and listens on an abstract Unix socket. Its name is an
// HMAC of the group's identity with the job's secret: those who know the secret need not be told,
// others cannot take it before. Every other rank connects and goes through the same hello as on TCP
// (core/net/hello.h: version, job, run, generation, rank, proof of the secret by both), gets the
// memory's descriptor, writes a random number into its place there and names it on the socket. The
// first rank reads it back from the memory and answers in the memory with another; a machine that
// passes descriptors but not memory is found out. When all have proven it, the first rank says so
// and the sockets are closed.
#pragma once

#include <memory>

#include "backends/shm/shm_segment.h"
#include "core/deadline.h"
#include "core/error.h"
#include "core/group.h"

namespace pushpull {

[[nodiscard]] Result<std::unique_ptr<ShmSegment>> share_memory(const Group& group,
                                                               size_t chunk_bytes,
                                                               Deadline deadline);

}  // namespace pushpull
