// Small helpers for texts that people read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pushpull {

// 'text', with control characters escaped, and shortened to about `limit` characters: for showing
// what somebody else wrote inside a sentence.
std::string in_quotes(std::string_view text, size_t limit = 80);

// redis://user:password@host/0 -> redis://user:***@host/0; everything else stays.
std::string without_password(std::string_view url);

// Without spaces, tabs and carriage returns at either end.
std::string_view trimmed(std::string_view text);

// "a,b,,c" -> a, b, "", c: what stands between separators, at least one part. Parts of `text`.
std::vector<std::string_view> split(std::string_view text, char separator);

}  // namespace pushpull
