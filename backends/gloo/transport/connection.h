// One socket to one peer, carrying messages in both directions.
//
// On the wire a message is a Header, little-endian, and `length` bytes. Both ends trust each
// other's identity (the socket was authenticated) but not each other's lengths.
//
// Bytes go straight from and into the caller's memory. A message that no receive waits for stays in
// the socket, which holds its sender back; only where something else from the same peer is awaited
// behind it, it is put aside (at most kMaxAside bytes). Not thread-safe: the Wire's lock protects
// it.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "core/error.h"
#include "core/net/socket.h"

namespace pushpull::transport {

inline constexpr uint64_t kMagic = 0x315050'4f4f'4c47;  // "GLOOPP1"
inline constexpr uint64_t kNoOffset = ~uint64_t{0};

// As long as a cache line: the kernel's copy of the bytes behind it then has the alignment of the
// caller's memory. A copy whose target lies 1 to 31 bytes further into its page than its source
// took 2.5 times as long as others (AMD Zen 4, `rep movsb`), and with a header of 24 bytes in front
// that is where the large blocks of malloc came to lie.
struct Header {
  uint64_t magic = kMagic;
  uint64_t slot = 0;            // which receive it is for
  uint64_t length = 0;          // bytes that follow
  uint64_t offset = kNoOffset;  // kNoOffset, or where in a registered target (Gloo's bound buffers)
  uint64_t unused[4] = {};
};
inline constexpr size_t kMaxAside = size_t{256} << 20;

// Told that an operation has ended well. Called with the Wire's lock held; must not call back.
class Completion {
 public:
  virtual ~Completion() = default;
  virtual void sent(int peer) = 0;
  virtual void received(int peer) = 0;
};

struct SendOp {
  Header header;
  const char* from = nullptr;
  Completion* completion = nullptr;  // null: only counted
  size_t written = 0;                // header included
  std::unique_ptr<char[]> owned;     // a copy, where the caller's memory had to go; nobody is told
};

struct RecvOp {
  uint64_t slot = 0;
  char* to = nullptr;
  size_t length = 0;
  Completion* completion = nullptr;  // null: only counted
  std::shared_ptr<bool> taken;       // of a receive from any of several peers: has one delivered?
};

// Memory that the peer writes into wherever it likes.
struct Target {
  char* memory = nullptr;
  size_t length = 0;
  Completion* completion = nullptr;
};

class Connection {
 public:
  Connection(Socket socket, int peer) : socket_(std::move(socket)), peer_(peer) {}

  int fd() const { return socket_.fd(); }
  int peer() const { return peer_; }
  // In the child of a fork: closes without a word to the peer.
  void drop() { socket_.close(); }
  // Operations without a completion that have ended, since the beginning.
  uint64_t sent() const { return sent_; }
  uint64_t received() const { return received_; }

  // Starts an operation and does at once what can be done of it.
  [[nodiscard]] Result<void> send(SendOp op);
  [[nodiscard]] Result<void> recv(RecvOp op);
  [[nodiscard]] Result<void> add_target(uint64_t slot, const Target& target);
  void remove_target(uint64_t slot) { targets_.erase(slot); }

  // What epoll said (edges): there may be something to read, there is room to write.
  void mark_readable() { readable_ = true; }
  void mark_writable() { writable_ = true; }
  // Reads and writes what is possible; whether anything moved.
  [[nodiscard]] Result<bool> progress();
  bool idle() const { return outgoing_.empty() && posted_.empty() && !in_body_; }

  // The memory behind `completion` goes away: drops its receives, keeps a copy of what was not
  // sent.
  void forget(const Completion* completion);
  // Drops everything; nobody's memory is touched from now on.
  void clear();
  // Tells the peer that nothing more comes, and swallows what had arrived, so that closing does not
  // reset the connection and destroy what the peer has not read yet.
  void finish();

 private:
  enum class Body { kReceive, kTarget, kAside, kDiscard };
  struct Aside {
    uint64_t slot = 0;
    size_t length = 0;
    std::unique_ptr<char[]> bytes;
  };

  Result<bool> write_some();
  void written(size_t bytes);
  Result<bool> read_some();
  void arrived(size_t bytes);
  // Parses what is in ahead_; may stop at a message that has no place to go yet.
  Result<void> consume();
  // False: leave it for later.
  Result<bool> start_message(const Header& header);
  Result<void> start_target(const Header& header);
  Result<void> start_aside(const Header& header);
  void finish_message();
  std::deque<RecvOp>::iterator find_posted(uint64_t slot);
  void delivered(const RecvOp& op);
  bool wants_read() const;
  Result<void> lost(const char* what, int error_number) const;
  Result<void> confused(const char* what, uint64_t got, uint64_t expected) const;

  Socket socket_;
  int peer_;
  bool readable_ = true;
  bool writable_ = true;

  std::deque<SendOp> outgoing_;
  uint64_t sent_ = 0;

  std::deque<RecvOp> posted_;
  std::map<uint64_t, Target> targets_;
  std::deque<Aside> aside_;
  size_t aside_bytes_ = 0;
  uint64_t received_ = 0;

  // Read ahead of what has been consumed: headers and small messages come with one system call.
  std::array<char, 4096> ahead_;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
  bool parked_ = false;  // at ahead_begin_ is the header of a message without a place to go

  // The message being read.
  bool in_body_ = false;
  Body body_ = Body::kDiscard;
  char* into_ = nullptr;  // where its next byte goes; null: nowhere
  size_t missing_ = 0;
  RecvOp current_;                           // kReceive
  Completion* target_completion_ = nullptr;  // kTarget
  Aside current_aside_;                      // kAside
};

}  // namespace pushpull::transport
