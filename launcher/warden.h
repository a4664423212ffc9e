// The process that the user sees: it watches over the one that does the work.
//
// Workers die with the launcher (PR_SET_PDEATHSIG), but what they left behind would not. So the
// launcher is two processes: if the inner one is killed, its orphans become children of the outer
// one, which ends them; if the outer one is killed, the inner one notices and ends everything.
#pragma once

#include <functional>

namespace pushpull::launcher {

// Runs `work` in a child process with a descriptor that becomes readable when this process dies,
// passes signals on to it, and returns its exit code when nothing of it is left. `work` runs on the
// main thread of the child, which then ends without running destructors of this process's objects.
int run_watched(const std::function<int(int alive)>& work);

}  // namespace pushpull::launcher
