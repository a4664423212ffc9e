#include "backends/mpi/mpi_types.h"

#include <utility>

#include "backends/mpi/mpi_error.h"
#include "core/reduce.h"

namespace pushpull {

namespace {

template <DType kDType>
void add_in(void* in, void* inout, int* count, MPI_Datatype*) {
  add(kDType, inout, in, inout, static_cast<size_t>(*count));
}

}  // namespace

Result<MpiTypes> MpiTypes::make() {
  MpiTypes types;
  constexpr int kCommutes = 1;
  for (auto [function, operation] : {std::pair{&add_in<DType::kFloat16>, &types.half_sum_},
                                     std::pair{&add_in<DType::kBfloat16>, &types.brain_sum_},
                                     std::pair{&add_in<DType::kUint8>, &types.byte_sum_}})
    if (auto made =
            check_mpi(MPI_Op_create(function, kCommutes, operation), "making an MPI operation");
        !made)
      return fail(made.error());
  return types;
}

MpiTypes::MpiTypes(MpiTypes&& other) noexcept
    : half_sum_(std::exchange(other.half_sum_, MPI_OP_NULL)),
      brain_sum_(std::exchange(other.brain_sum_, MPI_OP_NULL)),
      byte_sum_(std::exchange(other.byte_sum_, MPI_OP_NULL)) {}

MpiTypes::~MpiTypes() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) return;
  for (MPI_Op* operation : {&half_sum_, &brain_sum_, &byte_sum_})
    if (*operation != MPI_OP_NULL) MPI_Op_free(operation);
}

MPI_Datatype MpiTypes::datatype(DType dtype) const {
  switch (dtype) {
    case DType::kFloat32:
      return MPI_FLOAT;
    case DType::kFloat64:
      return MPI_DOUBLE;
    case DType::kFloat16:
    case DType::kBfloat16:
      return MPI_UINT16_T;
    case DType::kInt8:
      return MPI_INT8_T;
    case DType::kUint8:
      return MPI_UINT8_T;
    case DType::kInt32:
      return MPI_INT32_T;
    case DType::kInt64:
      return MPI_INT64_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op MpiTypes::sum(DType dtype) const {
  switch (dtype) {
    case DType::kFloat16:
      return half_sum_;
    case DType::kBfloat16:
      return brain_sum_;
    case DType::kInt8:
    case DType::kUint8:
      return byte_sum_;
    default:
      return MPI_SUM;
  }
}

}  // namespace pushpull
