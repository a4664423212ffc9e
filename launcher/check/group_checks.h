// What the doctor looks at between ranks: whether each reaches each, how their clocks differ, how
// quick the links are, and whether an exchange gives the right sums.
#pragma once

#include <vector>

#include "core/backend.h"
#include "core/registry.h"
#include "core/settings.h"
#include "launcher/check/result.h"

namespace pushpull::launcher {

// All ranks call it at about the same time; they meet at settings.rendezvous.
std::vector<Finding> check_group(const Settings& settings, const Identity& identity,
                                 Registry& registry);

// Joins the group of settings.backend as training would, and sums.
Finding check_exchange(const Settings& settings, const Identity& identity, Registry& registry);

}  // namespace pushpull::launcher
