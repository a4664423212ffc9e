// Ranks of one machine that share its cores.
#pragma once

#include <span>

#include "core/group.h"

namespace pushpull {

// Whether more ranks of the group are on this rank's machine than there are cores that this process
// may use: one that spins then keeps the awaited one from running.
bool ranks_outnumber_cores(const Group& group);

// The core on which the calling thread runs just now, -1 where the system does not say.
int this_core();

// Moves the calling thread to a core that it may use and that is none of `taken`; from there it may
// go wherever it might before. False where there is none.
bool leave_core(std::span<const int> taken);

// Between two looks of a thread that spins.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace pushpull
