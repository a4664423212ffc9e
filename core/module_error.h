// Why a module could not be opened, in words that help.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"

namespace pushpull {

// The Debian package that has a shared library, by its file name: "libhiredis.so.0.14" ->
// "libhiredis0.14". Follows Debian's naming rule (library name, then version, with "-" between two
// digits) and knows the libraries that do not. Empty where `library` is no versioned library name.
std::string debian_package(std::string_view library);

// The library that dlopen missed, from dlerror()'s text; empty where it says something else.
std::string missing_library(std::string_view dlerror_text);

// What dlopen's failure for the module file `path` means. `what`: "backend 'mpi'". Unavailable.
Error module_load_error(std::string_view what, std::string_view path,
                        std::string_view dlerror_text);

}  // namespace pushpull
