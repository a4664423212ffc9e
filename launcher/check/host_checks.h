// What the doctor looks at on one host, without talking to other ranks.
#pragma once

#include <vector>

#include "core/registry.h"
#include "core/settings.h"
#include "launcher/check/result.h"

namespace pushpull::launcher {

// `local_size`: how many ranks share this host. Takes a second or so; makes files and processes
// only to remove them.
std::vector<Finding> check_host(const Settings& settings, Registry& registry, int local_size);

}  // namespace pushpull::launcher
