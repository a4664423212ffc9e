// Tells a TLS port from a dead server.
//
// A Redis that speaks TLS answers a plain command by a reset, just as a server that is being
// restarted; only the words of a TLS greeting make it say which of the two it is.
#pragma once

#include "core/deadline.h"

namespace pushpull::redis {

// Sends a TLS ClientHello over the fresh connection `fd` (non-blocking) and says whether what comes
// back is TLS.
[[nodiscard]] bool speaks_tls(int fd, Deadline deadline);

}  // namespace pushpull::redis
