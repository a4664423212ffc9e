#pragma once

namespace pushpull {

// Also in CMakeLists.txt and pyproject.toml; a test compares them.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace pushpull
