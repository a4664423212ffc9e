// Reads a pipe as its content arrives, in the event loop.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "core/net/socket.h"

namespace asio {
class io_context;
}

namespace pushpull::launcher {

class PipeReader {
 public:
  using Receive = std::function<void(std::string_view)>;

  // `pipe` must be non-blocking. Reading begins at once.
  PipeReader(asio::io_context& io, Socket pipe, Receive receive);
  ~PipeReader();
  PipeReader(PipeReader&&) noexcept;

  void pause(bool paused);
  // Delivers what is in the pipe now, even while paused; no more than `most` bytes.
  void drain(size_t most = size_t{64} << 20);
  // Closes the reading end: who writes gets EPIPE.
  void close();
  bool at_end() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace pushpull::launcher
