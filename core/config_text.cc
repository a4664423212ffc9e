// Texts of single values: numbers, durations, sizes, names.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "core/config.h"

namespace pushpull {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// "1.5MiB" -> 1.5 and "MiB". Only digits with at most one point, nothing signed or exponential.
struct NumberAndUnit {
  double number;
  std::string_view unit;
};
std::optional<NumberAndUnit> split_number(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && (is_digit(text[end]) || text[end] == '.')) ++end;
  if (end == 0 || !is_digit(text[0])) return std::nullopt;
  double number = 0;
  const auto [stop, error] =
      std::from_chars(text.data(), text.data() + end, number, std::chars_format::fixed);
  if (error != std::errc() || stop != text.data() + end) return std::nullopt;
  return NumberAndUnit{number, text.substr(end)};
}

std::optional<double> byte_unit(std::string_view unit) {
  std::string name;
  for (const char c : unit) name += lower(c);
  if (name.empty() || name == "b") return 1.0;
  constexpr std::string_view prefixes = "kmgt";
  const size_t power = prefixes.find(name[0]);
  if (power == std::string_view::npos) return std::nullopt;
  const std::string_view rest = std::string_view(name).substr(1);
  if (rest == "b") return std::pow(1000.0, static_cast<double>(power + 1));
  if (rest.empty() || rest == "ib") return std::pow(1024.0, static_cast<double>(power + 1));
  return std::nullopt;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

Result<int64_t> parse_integer(std::string_view text) {
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
  if (!digits) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a whole number", text));
  }
  if (text.size() > 1 && text[0] == '0') {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' begins with a zero, which some programs read as octal; write it "
                            "without",
                            text));
  }
  int64_t number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc()) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is too large", text));
  }
  return number;
}

Result<Duration> parse_duration(std::string_view text) {
  const auto wrong = [&] {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a duration; write it like 60s, 200ms, 2m or 1h", text));
  };
  const auto parts = split_number(text);
  if (!parts) return wrong();
  double seconds = 0;
  if (parts->unit.empty() || parts->unit == "s") seconds = 1;
  if (parts->unit == "us") seconds = 1e-6;
  if (parts->unit == "ms") seconds = 1e-3;
  if (parts->unit == "m" || parts->unit == "min") seconds = 60;
  if (parts->unit == "h") seconds = 3600;
  if (parts->unit == "d") seconds = 86400;
  if (seconds == 0) return wrong();
  constexpr double kMostSeconds = 10 * 365 * 86400.0;
  if (parts->number * seconds > kMostSeconds) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is longer than ten years", text));
  }
  return std::chrono::round<Duration>(std::chrono::duration<double>(parts->number * seconds));
}

Result<size_t> parse_bytes(std::string_view text) {
  const auto parts = split_number(text);
  const auto unit = parts ? byte_unit(parts->unit) : std::nullopt;
  if (!unit) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a size; write it like 4MiB, 64KiB or 1GB", text));
  }
  const double bytes = parts->number * *unit;
  constexpr double kMost = 9.0e18;
  if (bytes > kMost) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is too large", text));
  }
  return static_cast<size_t>(std::llround(bytes));
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::numeric_limits<size_t>::max();
  for (const std::string& candidate : known) {
    size_t distance = edit_distance(name, candidate);
    // The beginning of a name is close to it.
    if (name.size() >= 3 && candidate.substr(0, name.size()) == name)
      distance = std::min<size_t>(distance, 1);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  const size_t allowed = std::max<size_t>(1, std::max(name.size(), best.size()) / 3);
  return best_distance <= allowed ? best : std::string();
}

}  // namespace pushpull
