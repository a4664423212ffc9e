// Random names and secrets.
#pragma once

#include <cstddef>
#include <string>

namespace pushpull::launcher {

// Two hexadecimal digits per byte, from the kernel. At most 256 bytes.
std::string random_text(size_t bytes);

}  // namespace pushpull::launcher
