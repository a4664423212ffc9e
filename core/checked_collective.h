// Checks arguments once, in front of any Collective, so that backends need not.
#pragma once

#include <memory>

#include "core/collective.h"

namespace pushpull {

// Wraps `inner`. Adds to its contract:
// - InvalidArgument for arguments that break collective.h, before anything is sent; the collective
//   stays usable;
// - once a call of `inner` failed, every later call returns that error;
// - `done` may be empty.
std::unique_ptr<Collective> make_checked(std::unique_ptr<Collective> inner);

}  // namespace pushpull
