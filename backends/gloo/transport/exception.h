// From errors as values to the exceptions that Gloo's interface wants. They never leave the code
// that calls Gloo's own collectives.
#pragma once

#include <gloo/common/error.h>

#include <utility>

#include "core/error.h"

namespace pushpull::transport {

[[noreturn]] inline void throw_gloo(const Error& error) {
  throw gloo::IoException(error.message());
}

inline void check_or_throw(const Result<void>& result) {
  if (!result) throw_gloo(result.error());
}

template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw_gloo(result.error());
  return std::move(*result);
}

}  // namespace pushpull::transport
