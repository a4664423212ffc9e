// Arithmetic on ranges of elements. One kernel set per CPU generation, chosen at run time (Google
// Highway). Same bits on every target: sums are made element by element, never re-associated.
//
// Float16 and bfloat16 are converted to float32, added there, and rounded back to nearest even once
// per call; bfloat16 by integer arithmetic, so that denormals survive and NaN stays NaN on every CPU.
// Integer sums wrap around. Pointers need element alignment only; out may equal any input, else no overlap.
#pragma once

#include <cstddef>
#include <span>

#include "core/dtype.h"

namespace pushpull {

// out[i] = a[i] + b[i]
void add(DType dtype, void* out, const void* a, const void* b, size_t count);

// out[i] = ((in[0][i] + in[1][i]) + in[2][i]) + …, with one rounding at the end for float16 and
// bfloat16 (they accumulate in float32). At least one input.
void add_all(DType dtype, void* out, std::span<const void* const> in, size_t count);

// out[i] = factor * in[i]; float32 arithmetic for 16-bit types, float64 for float64. Integer types: no effect
// but a copy (factor must be 1).
void scale(DType dtype, void* out, const void* in, double factor, size_t count);

// Name of the kernel set in use: "AVX3", "AVX2", "SSE4", "EMU128", …
const char* reduce_target();
// The kernel sets this CPU can run, and a way for tests to pin one of them (nullptr: automatic).
std::span<const char* const> reduce_targets();
bool use_reduce_target(const char* name);

}  // namespace pushpull
