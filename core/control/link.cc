#include "core/control/link.h"

#include <atomic>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "core/control/mailbox_sender.h"

namespace pushpull {
namespace {

// Also what wakes a reader of the shared mailbox.
const std::string& heartbeat_frame() {
  static const std::string frame = [] {
    std::string encoded;
    encode(FromRank(Heartbeat{}), &encoded);
    return encoded;
  }();
  return frame;
}

// What the loop's handlers share; outlives the link only while one of them runs.
struct SocketLinkState {
  std::shared_ptr<Connection> connection;
  Duration limit;

  // Guards `receiver` against close(); held while it is called, and a callback may close the link.
  std::recursive_mutex mutex;
  ControlLink::Receiver receiver;
  bool open = true;
  bool verdict = false;  // an Aborted or Farewell came: the end of the connection is no news

  // Set once; the pointers are published by `shared`.
  std::unique_ptr<MailboxReader> reader;
  std::shared_ptr<MailboxSender> writer;
  std::atomic<bool> shared = false;

  std::atomic<Clock::time_point> heard = Clock::now();  // either way
  // Only on the loop's thread.
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

  // Whatever comes over the connection came after what is in the mailbox.
  Result<size_t> hear(std::string_view bytes) {
    if (shared.load(std::memory_order_acquire))
      if (auto drained = reader->drain(); !drained) return pushpull::fail(drained.error());
    return take(bytes);
  }

  Result<size_t> take(std::string_view bytes) {
    // Who polls takes the coordinator's heartbeats out of the mailbox too.
    heard = Clock::now();
    size_t used = 0;
    while (used < bytes.size()) {
      auto decoded = decode_to_rank(bytes.substr(used));
      if (!decoded) return pushpull::fail(decoded.error());
      if (!*decoded) break;
      used += (*decoded)->bytes;
      deliver((*decoded)->message);
    }
    return used;
  }

  bool poll() {
    if (!shared.load(std::memory_order_acquire)) return false;
    const auto drained = reader->try_drain();
    if (!drained) fail(drained.error().message());
    return !drained || *drained;
  }

  void drain() {
    if (!shared.load(std::memory_order_acquire)) return;
    if (const auto drained = reader->drain(); !drained) fail(drained.error().message());
  }

  void fail(const std::string& why) {
    connection->close();
    lost(why);
  }

  void ended(const std::string& why) {
    if (shared.load(std::memory_order_acquire)) (void)reader->drain();
    lost(why);
  }

  void beat() {
    const auto now = Clock::now();
    // A process that was stopped for a while must not blame the coordinator for its own silence.
    if (now - last_check > limit) heard = now;
    last_check = now;
    if (now - heard.load() > limit) {
      fail(fmt::format("nothing was heard from it for {:.0f} s",
                       std::chrono::duration<double>(limit).count()));
      return;
    }
    connection->send(heartbeat_frame());
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
          return live ? live->hear(bytes) : bytes.size();
        },
        [weak](const std::string& why) {
          if (const auto live = weak.lock()) live->ended(why);
        });
    io_.every(state_->limit / 4, [weak] {
      const auto live = weak.lock();
      if (live && !live->connection->closed()) live->beat();
    });
  }

  void send(std::span<const FromRank> messages) override {
    std::string frames;
    for (const FromRank& m : messages) encode(m, &frames);
    if (state_->shared.load(std::memory_order_acquire)) {
      state_->writer->send(frames);
    } else {
      state_->connection->send(frames);
    }
  }

  void share(int, const MailboxPair& pair) override {
    const std::weak_ptr weak = state_;
    const auto take = [state = state_.get()](std::string_view bytes) { return state->take(bytes); };
    state_->reader = std::make_unique<MailboxReader>(*pair.in, pair.owner, take);
    state_->writer = std::make_shared<MailboxSender>(
        io_, pair, state_->connection, heartbeat_frame(), [weak] {
          if (const auto live = weak.lock()) live->fail("it stopped reading");
        });
    state_->shared.store(true, std::memory_order_release);
    // What came before this rank looked for it.
    io_.post([weak] {
      if (const auto live = weak.lock()) live->drain();
    });
  }

  bool poll() override { return state_->poll(); }

  void watch(bool on) override {
    if (state_->shared.load(std::memory_order_acquire)) state_->reader->watch(on);
  }
  void drain() override { state_->drain(); }

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
