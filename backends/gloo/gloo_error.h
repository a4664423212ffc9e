// From what Gloo throws to errors as values.
#pragma once

#include <exception>

#include "core/error.h"

namespace pushpull {

Error gloo_error(const std::exception& exception);

}  // namespace pushpull
