#include "core/control/mailbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace pushpull {
namespace {

constexpr size_t kMaxQueued = 64u << 20;

}  // namespace

// Sequentially consistent where one side stores and then looks at what the other stores: a writer
// that sees no watcher and a reader that sees no news cannot both be right.

MailboxWriter::After MailboxWriter::write(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (!queued_.empty()) queued_.erase(0, put(queued_));
  if (queued_.empty()) bytes.remove_prefix(put(bytes));
  queued_.append(bytes);
  After after;
  after.retry = !queued_.empty();
  after.stuck = queued_.size() > kMaxQueued;
  if (written_ != memory_.taken.load(std::memory_order_relaxed) &&
      memory_.watched.load(std::memory_order_seq_cst) == 0)
    after.wake = memory_.called.exchange(1, std::memory_order_seq_cst) == 0;
  return after;
}

size_t MailboxWriter::put(std::string_view bytes) {
  const uint64_t used = written_ - memory_.taken.load(std::memory_order_acquire);
  if (used > MailboxMemory::kBytes) return 0;  // nonsense from the other side
  const size_t count = std::min<size_t>(bytes.size(), MailboxMemory::kBytes - used);
  if (count == 0) return 0;
  const size_t at = written_ % MailboxMemory::kBytes;
  const size_t first = std::min(count, MailboxMemory::kBytes - at);
  std::memcpy(memory_.ring.data() + at, bytes.data(), first);
  std::memcpy(memory_.ring.data(), bytes.data() + first, count - first);
  written_ += count;
  memory_.written.store(written_, std::memory_order_seq_cst);
  return count;
}

Result<bool> MailboxReader::drain() {
  const std::lock_guard lock(mutex_);
  return hand_on();
}

Result<bool> MailboxReader::try_drain() {
  if (!news()) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock ? hand_on() : Result<bool>(false);
}

Result<bool> MailboxReader::hand_on() {
  if (std::exchange(draining_, true)) return false;
  struct Reset {
    bool& flag;
    ~Reset() { flag = false; }
  } reset{draining_};
  bool any = false;
  memory_.called.store(0, std::memory_order_seq_cst);
  for (;;) {
    const uint64_t taken = taken_.load(std::memory_order_relaxed);
    const uint64_t count = memory_.written.load(std::memory_order_seq_cst) - taken;
    if (count == 0) return any;
    if (count > MailboxMemory::kBytes)
      return fail(ErrorCode::kInvalidArgument, "the shared mailbox is damaged");
    any = true;
    const size_t at = taken % MailboxMemory::kBytes;
    const size_t first = std::min<size_t>(count, MailboxMemory::kBytes - at);
    received_.append(memory_.ring.data() + at, first);
    received_.append(memory_.ring.data(), count - first);
    taken_.store(taken + count, std::memory_order_relaxed);
    memory_.taken.store(taken + count, std::memory_order_release);
    while (!received_.empty()) {
      const auto used = take_(received_);
      if (!used) return fail(used.error());
      if (*used == 0) break;
      received_.erase(0, *used);
    }
  }
}

}  // namespace pushpull
