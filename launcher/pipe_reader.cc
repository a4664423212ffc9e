#include "launcher/pipe_reader.h"

#include <unistd.h>

#include <cerrno>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

namespace pushpull::launcher {

struct PipeReader::State : std::enable_shared_from_this<State> {
  State(asio::io_context& io, Receive on_bytes) : descriptor(io), receive(std::move(on_bytes)) {}

  // Returns whether there may be more.
  bool read_some() {
    constexpr size_t kBufferBytes = size_t{256} << 10;
    if (!descriptor.is_open()) return false;
    buffer.resize(kBufferBytes);
    ssize_t n;
    do {
      n = ::read(descriptor.native_handle(), buffer.data(), buffer.size());
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
      delivered += static_cast<size_t>(n);
      receive(std::string_view(buffer.data(), static_cast<size_t>(n)));
      return true;
    }
    if (n == 0 || errno != EAGAIN) close();
    return false;
  }

  void arm() {
    if (waiting || paused || !descriptor.is_open()) return;
    waiting = true;
    descriptor.async_wait(asio::posix::descriptor_base::wait_read,
                          [self = shared_from_this()](const asio::error_code& error) {
                            self->waiting = false;
                            if (error) return;
                            if (!self->paused) self->read_some();
                            self->arm();
                          });
  }

  void close() {
    asio::error_code ignored;
    descriptor.close(ignored);
  }

  asio::posix::stream_descriptor descriptor;
  Receive receive;
  std::vector<char> buffer;
  size_t delivered = 0;
  bool paused = false;
  bool waiting = false;
};

PipeReader::PipeReader(asio::io_context& io, Socket pipe, Receive receive)
    : state_(std::make_shared<State>(io, std::move(receive))) {
  asio::error_code ignored;  // it is a pipe, so epoll takes it
  state_->descriptor.assign(pipe.release(), ignored);
  state_->arm();
}

PipeReader::~PipeReader() {
  if (state_) state_->close();
}

PipeReader::PipeReader(PipeReader&&) noexcept = default;

void PipeReader::pause(bool paused) {
  state_->paused = paused;
  state_->arm();
}

void PipeReader::drain(size_t most) {
  const size_t end = state_->delivered + most;
  while (state_->delivered < end && state_->read_some()) {
  }
}

void PipeReader::close() { state_->close(); }

bool PipeReader::at_end() const { return !state_->descriptor.is_open(); }

}  // namespace pushpull::launcher
