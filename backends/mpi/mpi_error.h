// Where MPI's return codes become errors of ours.
#pragma once

#include <string_view>

#include "core/error.h"

namespace pushpull {

// "<what> failed: <MPI's own text>". `code` is what an MPI function returned, not MPI_SUCCESS. What
// MPI says about a peer that is gone becomes PeerLost, everything else Unavailable.
Error mpi_error(int code, std::string_view what);

// The check around every MPI call.
inline Result<void> check_mpi(int code, std::string_view what) {
  if (code == 0) return {};  // MPI_SUCCESS
  return fail(mpi_error(code, what));
}

}  // namespace pushpull
