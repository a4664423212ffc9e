// A list of names as settings hold it: "PATH,OMP_*,^OMP_SECRET".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pushpull::launcher {

// Items are separated by commas or blanks; a trailing * stands for anything, ^ excludes. The last
// item that fits decides.
class NameList {
 public:
  explicit NameList(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find_first_of(", \t");
      if (const auto item = text.substr(0, end); !item.empty()) items_.emplace_back(item);
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
  }

  bool has(std::string_view name) const {
    bool found = false;
    for (std::string_view item : items_) {
      const bool exclude = item.front() == '^';
      if (exclude) item.remove_prefix(1);
      const bool prefix = item.ends_with('*');
      if (prefix) item.remove_suffix(1);
      if (prefix ? name.starts_with(item) : name == item) found = !exclude;
    }
    return found;
  }

 private:
  std::vector<std::string> items_;
};

}  // namespace pushpull::launcher
