// What an allreduce must give, computed one element at a time in the documented order, without the
// project's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/collective.h"
#include "core/dtype.h"
#include "core/layout.h"

namespace pushpull::testing {

using Bytes = std::vector<unsigned char>;

// The exact value of a 16-bit float, and the nearest 16-bit float (ties to even).
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
float brain_to_float(uint16_t bits);
uint16_t float_to_brain(float value);

// What rank `rank` contributes: any values of the type that sums of some ranks stay within,
// different per rank, element and seed.
Bytes make_input(DType dtype, size_t count, int rank, uint32_t seed);

// Whether sums of float16 and bfloat16 are rounded after each addition, or once at the end.
enum class Rounding16 { kOnce, kEachAddition };

// The result on every rank of an allreduce of whole tensors of `count` elements, inputs[r] on rank
// r.
Bytes reference_sum(DType dtype, size_t count, const std::vector<Bytes>& inputs,
                    const Reduce& reduce = {}, Rounding16 rounding = Rounding16::kOnce);

// The same where ranks share memory by host and the tensor is cut into `slices`: each host sums its
// local ranks 1, 2, ..., 0 and rounds to the type, then the hosts are summed as ranks are above,
// starting with the slice's number + 1.
Bytes reference_sum_by_host(DType dtype, size_t count, const std::vector<Bytes>& inputs,
                            const Layout& layout, int slices, const Reduce& reduce = {},
                            Rounding16 rounding = Rounding16::kOnce);

}  // namespace pushpull::testing
