#include "backends/mpi/mpi_error.h"

#include <fmt/format.h>
#include <mpi.h>

#include <string>

namespace pushpull {

static_assert(MPI_SUCCESS == 0);

Error mpi_error(int code, std::string_view what) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  int error_class = MPI_ERR_UNKNOWN;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  MPI_Error_class(code, &error_class);
  const std::string_view said(text, static_cast<size_t>(length));
  // Open MPI 4 has no class for a dead peer: what its transports notice arrives as one of these.
  const bool peer = error_class == MPI_ERR_OTHER || error_class == MPI_ERR_INTERN ||
                    error_class == MPI_ERR_UNKNOWN || error_class == MPI_ERR_PENDING;
  return Error(peer ? ErrorCode::kPeerLost : ErrorCode::kUnavailable,
               fmt::format("{} failed: {}", what,
                           said.empty() ? fmt::format("MPI error {}", code) : std::string(said)));
}

}  // namespace pushpull
