#include "launcher/environment_block.h"

#include <algorithm>

namespace pushpull::launcher {

std::optional<std::string> EnvironmentBlock::get(std::string_view name) const {
  for (const std::string& entry : entries_) {
    if (entry.size() > name.size() && entry[name.size()] == '=' && name_of(entry) == name) {
      return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

void EnvironmentBlock::set(std::string_view name, std::string_view value) {
  remove_if([&](std::string_view other) { return other == name; });
  entries_.push_back(std::string(name) + "=" + std::string(value));
}

std::vector<std::string> EnvironmentBlock::remove_if(
    const std::function<bool(std::string_view)>& condition) {
  std::vector<std::string> names;
  const auto removed = std::remove_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
    const bool matches = condition(name_of(entry));
    if (matches) names.emplace_back(name_of(entry));
    return matches;
  });
  entries_.erase(removed, entries_.end());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace pushpull::launcher
