#include "core/control/connection.h"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include <asio.hpp>

namespace pushpull {
namespace {

// A rank that does not read this much is not going to.
constexpr size_t kMaxQueued = 64u << 20;

class AsioConnection final : public Connection {
 public:
  AsioConnection(IoThread& io, Socket socket)
      : io_(io), stream_(io.context(), socket.fd()), timer_(io.context()), fd_(socket.release()) {}

  void start(OnBytes on_bytes, OnClosed on_closed) override {
    asio::post(io_.context(), [self = self(), bytes = std::move(on_bytes),
                               ended = std::move(on_closed)]() mutable {
      self->on_bytes_ = std::move(bytes);
      self->on_closed_ = std::move(ended);
      self->read();
    });
  }

  void send(std::string_view bytes) override {
    std::lock_guard lock(mutex_);
    if (closed_ || finishing_) return;
    if (queued_.empty()) bytes.remove_prefix(write_now(bytes));
    if (bytes.empty()) return;
    const bool idle = queued_.empty();
    queued_.append(bytes);
    if (queued_.size() > kMaxQueued) {
      asio::post(io_.context(), [self = self()] { self->end("it stopped reading"); });
    } else if (idle) {
      asio::post(io_.context(), [self = self()] { self->wait_writable(); });
    }
  }

  void finish(Duration limit) override {
    asio::post(io_.context(), [self = self(), limit] {
      {
        std::lock_guard lock(self->mutex_);
        if (self->closed_ || self->finishing_) return;
        self->finishing_ = true;
        if (self->queued_.empty()) ::shutdown(self->fd_, SHUT_WR);
      }
      self->on_closed_ = nullptr;
      self->on_bytes_ = [](std::string_view bytes) -> Result<size_t> { return bytes.size(); };
      self->timer_.expires_after(limit);
      self->timer_.async_wait([self](const asio::error_code& error) {
        if (!error) self->end("");
      });
    });
  }

  void close() override {
    asio::post(io_.context(), [self = self()] {
      self->on_closed_ = nullptr;
      self->end("");
    });
  }

  bool closed() const override { return closed_; }
  int fd() const override { return fd_; }

 private:
  std::shared_ptr<AsioConnection> self() {
    return std::static_pointer_cast<AsioConnection>(shared_from_this());
  }

  // Under the lock. Bytes the socket took; 0 on errors, which the reading side will report.
  size_t write_now(std::string_view bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n =
          ::send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        done += static_cast<size_t>(n);
      } else if (errno != EINTR) {
        break;
      }
    }
    return done;
  }

  void wait_writable() {
    stream_.async_wait(asio::posix::stream_descriptor::wait_write,
                       [self = self()](const asio::error_code& error) {
                         if (!error) self->write_queued();
                       });
  }

  void write_queued() {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    queued_.erase(0, write_now(queued_));
    if (!queued_.empty()) {
      wait_writable();
    } else if (finishing_) {
      ::shutdown(fd_, SHUT_WR);
    }
  }

  void read() {
    stream_.async_read_some(asio::buffer(buffer_),
                            [self = self()](const asio::error_code& error, size_t n) {
                              if (error) return self->end(self->reason(error));
                              self->take(n);
                            });
  }

  static std::string reason(const asio::error_code& error) {
    return error == asio::error::eof ? "connection closed" : error.message();
  }

  void take(size_t n) {
    received_.append(buffer_.data(), n);
    while (!received_.empty()) {
      const auto used = on_bytes_(received_);
      if (!used) return end(used.error().message());
      if (*used == 0) break;
      received_.erase(0, *used);
    }
    if (!closed_) read();
  }

  // On the loop's thread.
  void end(const std::string& why) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = true;
      queued_.clear();
    }
    asio::error_code ignored;
    timer_.cancel();
    stream_.close(ignored);
    on_bytes_ = nullptr;
    if (auto f = std::exchange(on_closed_, nullptr)) f(why);
  }

  IoThread& io_;
  asio::posix::stream_descriptor stream_;
  asio::steady_timer timer_;
  const int fd_;

  std::mutex mutex_;
  std::string queued_;
  bool finishing_ = false;
  std::atomic<bool> closed_ = false;

  // Only on the loop's thread.
  std::array<char, 64 * 1024> buffer_;
  std::string received_;
  OnBytes on_bytes_;
  OnClosed on_closed_;
};

}  // namespace

std::shared_ptr<Connection> Connection::create(IoThread& io, Socket socket) {
  return std::make_shared<AsioConnection>(io, std::move(socket));
}

}  // namespace pushpull
