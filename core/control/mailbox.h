// Control frames between two processes of one host, through memory that both map.
//
// One direction is a ring of bytes with one writing and one reading process. The connection between
// the two stays what tells of deaths and what wakes a sleeping reader: a reader that watches looks by
// itself, so that nothing passes through the kernel; otherwise the writer learns that it has to send
// a byte over the connection, once until the reader has looked.
//
// The other process is believed no more than its connection is: the counters are checked, and the
// bytes are frames that the decoders check.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/error.h"

namespace pushpull {

// In the shared memory; zero when new.
struct MailboxMemory {
  static constexpr size_t kBytes = 64u << 10;
  alignas(64) std::atomic<uint64_t> written;  // bytes over all time
  alignas(64) std::atomic<uint64_t> taken;
  alignas(64) std::atomic<uint32_t> watched;  // 1: the reader looks by itself
  std::atomic<uint32_t> called;               // 1: the reader was woken and has not looked since
  alignas(64) std::array<char, kBytes> ring;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

class MailboxWriter {
 public:
  // `owner` keeps the memory mapped.
  MailboxWriter(MailboxMemory& memory, std::shared_ptr<void> owner)
      : memory_(memory), owner_(std::move(owner)) {}

  struct After {
    bool wake = false;   // the reader sleeps: wake it
    bool retry = false;  // the ring is full: the rest waits here for another write, an empty one will do
    bool stuck = false;  // the reader has not read for so long that it is not going to
  };
  // Any thread; keeps order; does not block.
  [[nodiscard]] After write(std::string_view bytes);

 private:
  size_t put(std::string_view bytes);

  MailboxMemory& memory_;
  const std::shared_ptr<void> owner_;
  std::mutex mutex_;
  uint64_t written_ = 0;
  std::string queued_;
};

class MailboxReader {
 public:
  // As Connection::OnBytes.
  using Take = std::function<Result<size_t>(std::string_view)>;

  MailboxReader(MailboxMemory& memory, std::shared_ptr<void> owner, Take take)
      : memory_(memory), owner_(std::move(owner)), take_(std::move(take)) {}

  // Hands on what has arrived; true where there was something. Any thread, one at a time: drain() waits
  // for the other one, try_drain() leaves it to that one. Nothing where `take` itself calls it.
  Result<bool> drain();
  Result<bool> try_drain();
  // From now on this process looks by itself, or not any more; then it has to drain() once.
  void watch(bool on) { memory_.watched.store(on ? 1 : 0, std::memory_order_seq_cst); }

 private:
  bool news() const { return memory_.written.load(std::memory_order_seq_cst) != taken_; }
  Result<bool> hand_on();

  MailboxMemory& memory_;
  const std::shared_ptr<void> owner_;
  const Take take_;
  std::recursive_mutex mutex_;
  bool draining_ = false;
  std::atomic<uint64_t> taken_ = 0;
  std::string received_;
};

// What two ranks share, seen from one of them.
struct MailboxPair {
  MailboxMemory* in = nullptr;
  MailboxMemory* out = nullptr;
  std::shared_ptr<void> owner;
};

}  // namespace pushpull
