#include "core/control/describe.h"

#include <fmt/format.h>

namespace pushpull {
namespace {

// Ends of the run of consecutive ranks that starts at `i`, where `together` says that two belong
// together.
template <class Together>
size_t run_end(std::span<const int> ranks, size_t i, Together together) {
  size_t end = i + 1;
  while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1 && together(ranks[i], ranks[end]))
    ++end;
  return end;
}

std::string format_run(int first, int last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

}  // namespace

std::string format_ranks(std::span<const int> ranks, size_t limit) {
  std::string text;
  size_t parts = 0;
  for (size_t i = 0; i < ranks.size();) {
    if (!text.empty()) text += ", ";
    if (parts++ == limit) return text + "…";
    const size_t end = run_end(ranks, i, [](int, int) { return true; });
    text += format_run(ranks[i], ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string ranks_phrase(std::span<const int> ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", format_ranks(ranks));
}

std::string ranks_with_hosts(std::span<const int> ranks, std::span<const Member> members) {
  constexpr size_t kMaxParts = 16;
  const auto host = [&](int r) -> std::string_view { return members[static_cast<size_t>(r)].host; };
  std::string text;
  size_t parts = 0;
  for (size_t i = 0; i < ranks.size();) {
    if (!text.empty()) text += ", ";
    if (parts++ == kMaxParts) return text + fmt::format("… ({} ranks in all)", ranks.size());
    const size_t end = run_end(ranks, i, [&](int a, int b) { return host(a) == host(b); });
    text += fmt::format("{} {} (host {})", end - i == 1 ? "rank" : "ranks",
                        format_run(ranks[i], ranks[end - 1]), host(ranks[i]));
    i = end;
  }
  return text;
}

std::string describe_member(const Member& member) {
  return fmt::format("rank {} (host {}, pid {})", member.rank, member.host, member.pid);
}

std::string quoted_key(std::string_view key) {
  constexpr size_t kMaxShown = 120;
  const bool cut = key.size() > kMaxShown;
  if (cut) {
    size_t end = kMaxShown;
    while (end > 0 && (static_cast<unsigned char>(key[end]) & 0xC0) == 0x80) --end;
    key = key.substr(0, end);
  }
  std::string text = "'";
  for (const char c : key) text += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  return text + (cut ? "…'" : "'");
}

std::string describe_call(CallKind kind, std::string_view key, uint64_t call) {
  if (waits_for_earlier(kind)) return fmt::format("{} call {}", to_string(kind), call);
  return fmt::format("{} call {} of key {}", to_string(kind), call, quoted_key(key));
}

std::string format_duration(Duration duration) {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const auto ms = duration_cast<milliseconds>(duration).count();
  if (ms < 1000) return fmt::format("{} ms", ms);
  const auto tenths = ms / 100;
  if (ms >= 10'000 || tenths % 10 == 0) return fmt::format("{} s", ms / 1000);
  return fmt::format("{}.{} s", tenths / 10, tenths % 10);
}

}  // namespace pushpull
