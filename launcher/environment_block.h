// An environment as processes get it: "NAME=value" strings, kept as they are where nobody changes
// them, for names may hold dots or be exported shell functions, and values may hold anything.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pushpull::launcher {

class EnvironmentBlock {
 public:
  explicit EnvironmentBlock(std::vector<std::string> entries) : entries_(std::move(entries)) {}

  std::optional<std::string> get(std::string_view name) const;
  void set(std::string_view name, std::string_view value);  // replaces every earlier one
  // Removes all whose name fulfils the condition; returns their names, sorted.
  std::vector<std::string> remove_if(const std::function<bool(std::string_view)>& condition);

  const std::vector<std::string>& entries() const { return entries_; }

  static std::string_view name_of(std::string_view entry) {
    return entry.substr(0, entry.find('='));
  }

 private:
  std::vector<std::string> entries_;
};

}  // namespace pushpull::launcher
