// The settings that have to be the same on every rank, as each rank sends them when it joins, so that a
// group whose ranks would not understand each other ends before it begins, with both values named.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/group.h"
#include "core/settings.h"

namespace pushpull {

// "PUSHPULL_SIZE=4\nPUSHPULL_LOCAL=auto\n…": one setting a line, always the same ones.
std::string shared_settings(const Settings& settings, int size);

// Compares what rank 0 and a rank that wants to join have said: nullopt, or an InvalidArgument that
// names the first setting that differs, both values, and both processes.
std::optional<Error> disagreement(const Member& leader, std::string_view leaders,
                                  const Member& joining, std::string_view theirs);

}  // namespace pushpull
