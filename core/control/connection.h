// A stream of control frames over one connected socket.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "core/control/io_thread.h"
#include "core/deadline.h"
#include "core/error.h"
#include "core/net/socket.h"

namespace pushpull {

// send() writes at once from the calling thread where the socket takes it; the rest goes out from the
// loop's thread. Reads happen on the loop's thread. Kept alive by shared_ptr, since the loop may still
// hold a handler when its owner lets go.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Looks at what has arrived and returns how many bytes it took; an error closes the connection.
  using OnBytes = std::function<Result<size_t>(std::string_view)>;
  // The connection ended by itself (not by close()); called once, on the loop's thread.
  using OnClosed = std::function<void(const std::string& why)>;

  static std::shared_ptr<Connection> create(IoThread& io, Socket socket);
  virtual ~Connection() = default;

  virtual void start(OnBytes on_bytes, OnClosed on_closed) = 0;
  // Any thread; keeps order. Dropped after close() or the end of the connection.
  virtual void send(std::string_view bytes) = 0;
  // Sends what is queued, then ends the sending direction; goes on reading (and dropping) until the
  // other side ends too or `limit` has passed, so that what was sent is not destroyed by a reset.
  virtual void finish(Duration limit) = 0;
  virtual void close() = 0;
  virtual bool closed() const = 0;
  // For a fork's child, which closes it without a word.
  virtual int fd() const = 0;
};

}  // namespace pushpull
