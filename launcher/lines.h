// Cuts a worker's output into lines and puts its tag in front of each.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace pushpull::launcher {

// One stream of one worker. A line ends with a newline. A carriage return starts a line over, as
// progress bars do: of what was written over only the last state comes out.
class LineTagger {
 public:
  explicit LineTagger(std::string tag) : tag_(std::move(tag)) {}

  // Appends the lines that `bytes` completes to `out`, each whole, however long. Returns how many
  // bytes were appended.
  size_t feed(std::string_view bytes, std::string& out);
  // Appends what has no newline yet as a line, if there is something.
  size_t finish(std::string& out);

  // The line that is not complete yet, as a terminal would show it now, tagged, without newline;
  // empty if there is none.
  std::string open_line() const;
  // Whether the open line has been started over, as progress bars do.
  bool is_progress() const { return progress_; }
  // Whether open_line() changed since this was last asked.
  bool take_open_line_changed() { return std::exchange(open_changed_, false); }

 private:
  void append_partial(std::string_view bytes);
  void append_line(std::string_view line, std::string& out) const;

  std::string tag_;
  std::string partial_;
  bool open_changed_ = false;
  bool progress_ = false;
};

// What a terminal shows in the end of a text with carriage returns.
std::string_view after_carriage_returns(std::string_view line);

}  // namespace pushpull::launcher
