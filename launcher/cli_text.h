// What shells and `man` know of the command line, made from the description that parses it.
#pragma once

#include <string>

#include "core/error.h"

namespace CLI {
class App;
}

namespace pushpull::launcher {

// A completion script for bash, zsh or fish.
[[nodiscard]] Result<std::string> completion_script(const CLI::App& program,
                                                    const std::string& shell);
// pushpull(1), in man's macros.
std::string man_page(const CLI::App& program, const std::string& version);

}  // namespace pushpull::launcher
