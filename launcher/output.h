// Where everything that a job prints goes: the launcher's own standard output and error.
//
// Writing may block for as long as a reader likes, and the launcher must answer to signals
// meanwhile: each destination has a thread that writes, and a bound after which full() asks to read
// no more from workers. Standard output and error that are one and the same file or terminal are
// one destination, so that lines keep their order. All functions are for the main thread.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/deadline.h"

namespace pushpull::launcher {

enum class Stream { kOut, kErr };
inline constexpr std::array<Stream, 2> kStreams = {Stream::kOut, Stream::kErr};

class Output {
 public:
  // `changed` is called on a writing thread when full() became false or closed() true.
  Output(int out, int err, std::function<void()> changed);
  ~Output();

  // Whole lines, each with its newline.
  void write_lines(Stream stream, std::string_view lines);
  // "pushpull: <line>" on standard error.
  void say(std::string_view line);
  // What stands below the last line of a terminal for now, such as a progress bar; empty for none.
  // Does nothing where the stream goes elsewhere.
  void show_open_line(Stream stream, const std::string& text);
  bool is_terminal(Stream stream) const;

  bool full() const;
  // Writing failed, for good; what is written is dropped. error() is errno: EPIPE where the reader
  // is gone.
  bool closed(Stream stream) const;
  int error(Stream stream) const;
  // Waits until everything is written; false if that took longer.
  bool flush(Deadline deadline);

 private:
  class Destination;
  Destination& at(Stream stream) const;

  std::unique_ptr<Destination> out_;
  std::unique_ptr<Destination> err_;  // null where it is the same as out_
};

}  // namespace pushpull::launcher
