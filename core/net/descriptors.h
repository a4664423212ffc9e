// The process's limit of open files (`ulimit -n`).
#pragma once

#include <cstddef>

#include "core/error.h"

namespace pushpull {

// Raises the soft limit, as far as the hard one allows, so that `count` descriptors more than those that
// any program may use (1,024, the usual soft limit) fit. Unavailable where the hard limit is lower; the
// soft one is then as high as it may be.
[[nodiscard]] Result<void> allow_descriptors(size_t count);

}  // namespace pushpull
