#include "backends/gloo/gloo_error.h"

#include <gloo/common/error.h>

#include <new>

#include <fmt/format.h>

namespace pushpull {

Error gloo_error(const std::exception& exception) {
  if (dynamic_cast<const std::bad_alloc*>(&exception) != nullptr)
    return Error(ErrorCode::kUnavailable, "there is not enough memory for the connections");
  if (dynamic_cast<const gloo::IoException*>(&exception) != nullptr)
    return Error(ErrorCode::kUnavailable, exception.what());
  return Error(ErrorCode::kUnsupported, fmt::format("Gloo refused: {}", exception.what()));
}

}  // namespace pushpull
