// Ranks of one machine that share its cores.
#pragma once

#include "core/group.h"

namespace pushpull {

// Whether more ranks of the group are on this rank's machine than there are cores that this process
// may use: one that spins then keeps the awaited one from running.
bool ranks_outnumber_cores(const Group& group);

}  // namespace pushpull
