// Errors inside the bridge. The bridge knows core through the C API only, so it has its own small
// type: a code of core/c_api.h and a sentence.
#pragma once

#include <string>
#include <utility>

#include <tl/expected.hpp>

#include "core/c_api.h"

namespace pushpull::bridge {

// The code of pushpull_bridge_*() for an array that is not in host memory.
inline constexpr int kNotOnHost = 100;

struct Failure {
  int code = PUSHPULL_INVALID_ARGUMENT;
  std::string message;
  bool restartable = false;  // starting the job again helps (exit code 75)
};

template <class T>
using Result = tl::expected<T, Failure>;

inline tl::unexpected<Failure> fail(int code, std::string message) {
  return tl::unexpected<Failure>(Failure{code, std::move(message), false});
}
inline tl::unexpected<Failure> fail(Failure failure) {
  return tl::unexpected<Failure>(std::move(failure));
}

// The error that the last C API call of this thread left.
inline Failure core_failure(int code) {
  return Failure{code, pushpull_last_error(), pushpull_last_error_restartable() != 0};
}

}  // namespace pushpull::bridge
