// MPI's names for our element types and their sums.
#pragma once

#include <mpi.h>

#include "core/dtype.h"
#include "core/error.h"

namespace pushpull {

// MPI knows no 16-bit floats: they travel as 16-bit integers, added by operations of our own, which
// round at every step. Sums of 8-bit integers are our own, too: Open MPI 4.1 saturates some
// elements of an array (those its AVX code adds) and wraps around the others. Owns these
// operations; to be destroyed before MPI is finalised.
class MpiTypes {
 public:
  [[nodiscard]] static Result<MpiTypes> make();
  MpiTypes(MpiTypes&& other) noexcept;
  MpiTypes& operator=(MpiTypes&&) = delete;
  ~MpiTypes();

  MPI_Datatype datatype(DType dtype) const;
  MPI_Op sum(DType dtype) const;

 private:
  MpiTypes() = default;
  MPI_Op half_sum_ = MPI_OP_NULL;
  MPI_Op brain_sum_ = MPI_OP_NULL;
  MPI_Op byte_sum_ = MPI_OP_NULL;
};

}  // namespace pushpull
