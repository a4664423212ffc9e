#include "core/control/link.h"

#include <atomic>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace pushpull {
namespace {

// What the loop's handlers share; outlives the link only while one of them runs.
struct SocketLinkState {
  std::shared_ptr<Connection> connection;
  Duration limit;

  // Guards `receiver` against close(); held while it is called, and a callback may close the link.
  std::recursive_mutex mutex;
  ControlLink::Receiver receiver;
  bool open = true;
  bool verdict = false;  // an Aborted or Farewell came: the end of the connection is no news

  // Only on the loop's thread.
  Clock::time_point heard = Clock::now();
  Clock::time_point last_check = Clock::now();

  void deliver(const ToRank& message) {
    std::lock_guard lock(mutex);
    if (std::holds_alternative<Aborted>(message) || std::holds_alternative<Farewell>(message))
      verdict = true;
    if (open) receiver.message(message);
  }

  void lost(const std::string& why) {
    std::lock_guard lock(mutex);
    if (open && !verdict) receiver.lost(why);
    open = false;
  }

  Result<size_t> take(std::string_view bytes) {
    heard = Clock::now();
    size_t used = 0;
    while (used < bytes.size()) {
      auto decoded = decode_to_rank(bytes.substr(used));
      if (!decoded) return fail(decoded.error());
      if (!*decoded) break;
      used += (*decoded)->bytes;
      deliver((*decoded)->message);
    }
    return used;
  }

  void beat() {
    const auto now = Clock::now();
    // A process that was stopped for a while must not blame the coordinator for its own silence.
    if (now - last_check > limit) heard = now;
    last_check = now;
    if (now - heard > limit) {
      connection->close();
      lost(fmt::format("nothing was heard from it for {:.0f} s",
                       std::chrono::duration<double>(limit).count()));
      return;
    }
    std::string frame;
    encode(FromRank(Heartbeat{}), &frame);
    connection->send(frame);
  }
};

class SocketLink final : public ControlLink {
 public:
  SocketLink(IoThread& io, Socket socket, Duration limit)
      : io_(io), state_(std::make_shared<SocketLinkState>()) {
    state_->connection = Connection::create(io, std::move(socket));
    state_->limit = limit;
  }
  ~SocketLink() override { close(); }

  void start(Receiver receiver) override {
    state_->receiver = std::move(receiver);
    // Weak: the state owns the connection, whose handlers must not own the state in turn.
    const std::weak_ptr weak = state_;
    state_->connection->start(
        [weak](std::string_view bytes) -> Result<size_t> {
          const auto live = weak.lock();
          return live ? live->take(bytes) : bytes.size();
        },
        [weak](const std::string& why) {
          if (const auto live = weak.lock()) live->lost(why);
        });
    io_.every(state_->limit / 4, [weak] {
      const auto live = weak.lock();
      if (live && !live->connection->closed()) live->beat();
    });
  }

  void send(std::span<const FromRank> messages) override {
    std::string frames;
    for (const FromRank& m : messages) encode(m, &frames);
    state_->connection->send(frames);
  }

  void close() override {
    {
      std::lock_guard lock(state_->mutex);
      state_->open = false;
    }
    state_->connection->finish(std::chrono::seconds(1));
  }

  int fd() const override { return state_->connection->closed() ? -1 : state_->connection->fd(); }

 private:
  IoThread& io_;
  std::shared_ptr<SocketLinkState> state_;
};

}  // namespace

std::unique_ptr<ControlLink> make_socket_link(IoThread& io, Socket socket, Duration limit) {
  return std::make_unique<SocketLink>(io, std::move(socket), limit);
}

}  // namespace pushpull
