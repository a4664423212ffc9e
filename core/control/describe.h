// How the control plane words ranks, calls and times, so that every rank reads the same sentences.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/control/messages.h"
#include "core/deadline.h"

namespace pushpull {

// A set of ranks as a bitmap, 64 ranks a word.
inline size_t rank_words(int size) { return (static_cast<size_t>(size) + 63) / 64; }
inline bool has_rank(std::span<const uint64_t> set, int rank) {
  return (set[static_cast<size_t>(rank) / 64] >> (rank % 64) & 1) != 0;
}

// "0, 3-7, 9": ascending ranks, runs joined, at most `limit` parts and then ", …".
std::string format_ranks(std::span<const int> ranks, size_t limit = 16);
// "rank 3" or "ranks 0, 3-7".
std::string ranks_phrase(std::span<const int> ranks);
// "rank 3 (host node-b), ranks 4-7 (host node-c)", at most 16 parts.
std::string ranks_with_hosts(std::span<const int> ranks, std::span<const Member> members);
// "rank 3 (host node-b, pid 4711)".
std::string describe_member(const Member& member);
// "'w'": shortened where it is very long, without control characters.
std::string quoted_key(std::string_view key);
// "pushpull call 12 of key 'w'", "barrier call 3".
std::string describe_call(CallKind kind, std::string_view key, uint64_t call);
// "30 s", "1.5 s", "200 ms".
std::string format_duration(Duration duration);

}  // namespace pushpull
