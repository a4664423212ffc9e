// Whether a sanitizer watches this program, which then takes many times as long.
#pragma once

namespace pushpull::testing {

#if defined(PUSHPULL_SANITIZED)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace pushpull::testing
