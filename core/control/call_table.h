// The calls that are open: announced by some rank, and neither cut into batches to the end nor
// failed.
//
// Dense and pooled: in the steady state nothing is hashed or allocated. A call is found by its
// key's number and its own; the calls of a key end in any order.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/control/describe.h"
#include "core/deadline.h"

namespace pushpull {

using Slot = uint32_t;
inline constexpr Slot kNoCall = ~Slot{0};         // not announced by anybody yet
inline constexpr Slot kEndedCall = ~Slot{0} - 1;  // over: it counts as made on every rank

enum class Stage : uint8_t {
  kWaiting,  // for ranks that have not announced it
  kReady,    // every rank has: it is being cut into batches
  kFailing,  // it fails on each rank as it comes
};

struct GroupCall {
  uint64_t number = 0;
  uint32_t key = 0;
  uint32_t announced = 0;  // by how many ranks
  uint32_t variant = 0;    // signature of whoever came first
  int32_t priority = 0;    // rank 0's
  Stage stage = Stage::kWaiting;
  bool facing = false;  // see Coordinator::State::note_facing
  uint64_t begin = 0;   // where the next piece starts
  Clock::time_point since{};
  Clock::time_point next_warning{};
  Slot older = kNoCall;  // neighbours in the list of waiting calls
  Slot newer = kNoCall;
  std::vector<std::pair<int, uint32_t>>
      deviants;  // (rank, variant) where it is another than `variant`
};

class CallTable {
 public:
  explicit CallTable(int size);

  Slot find(uint32_t key, uint64_t number) const {
    if (key >= windows_.size()) return kNoCall;
    const Window& w = windows_[key];
    if (number < w.base) return kEndedCall;
    const uint64_t i = number - w.base;
    return i < w.slots.size() - w.head ? w.slots[w.head + i] : kNoCall;
  }
  // Whether `number` may be opened or ended: not absurdly far ahead of the key's other calls.
  bool in_reach(uint32_t key, uint64_t number) const;

  // Opens a call that is not there yet; it waits from `now` on.
  Slot open(uint32_t key, uint64_t number, Clock::time_point now);
  // false where this rank had announced it before.
  bool announce(Slot slot, int rank, uint32_t variant);
  // Takes it off the list of waiting calls; a failing one does not count as open for any rank.
  void make_ready(Slot slot);
  void make_failing(Slot slot);
  // Ends a call, open or not yet.
  void end(uint32_t key, uint64_t number);

  GroupCall& operator[](Slot slot) { return calls_[slot]; }
  const GroupCall& operator[](Slot slot) const { return calls_[slot]; }
  std::span<const uint64_t> announcers(Slot slot) const { return {&bits_[slot * words_], words_}; }
  std::vector<int> missing(Slot slot) const;
  bool has_announced(Slot slot, int rank) const { return has_rank(announcers(slot), rank); }
  bool complete(Slot slot) const { return calls_[slot].announced == static_cast<uint32_t>(size_); }

  // Open calls that this rank has announced.
  uint64_t open_of(int rank) const { return marks_[static_cast<size_t>(rank)] - full_ends_; }
  bool any_open(uint32_t key) const {
    return key < windows_.size() && windows_[key].head < windows_[key].slots.size();
  }
  // The first call of the key that still waits for ranks, or kNoCall.
  Slot first_waiting(uint32_t key) const;
  // Waiting calls, from the oldest on by GroupCall::newer.
  Slot oldest() const { return oldest_; }
  size_t open_count() const { return calls_.size() - free_.size(); }

 private:
  struct Window {
    uint64_t base = 1;  // the lowest number that has not ended; slots[head] is its slot
    size_t head = 0;
    std::vector<Slot> slots;
  };

  Slot& place(Window& window, uint64_t number);
  void close_front(Window& window);
  void unlink(Slot slot);
  void uncount(Slot slot);

  int size_;
  size_t words_;
  std::vector<Window> windows_;  // by key
  std::vector<GroupCall> calls_;
  std::vector<uint64_t> bits_;  // words_ per call: who has announced it
  std::vector<Slot> free_;
  size_t places_ = 0;  // over all windows
  // Announcements per rank, without those of calls that ended with ranks missing or are failing;
  // the ends of complete calls are counted once for all.
  std::vector<uint64_t> marks_;
  uint64_t full_ends_ = 0;
  Slot oldest_ = kNoCall;
  Slot newest_ = kNoCall;
};

}  // namespace pushpull
