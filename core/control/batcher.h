// Ready calls, and how the next batch is cut from them: see core/control/coordinator.h.
#pragma once

#include <cstdint>
#include <vector>

#include "core/control/call_table.h"
#include "core/control/key_table.h"
#include "core/control/messages.h"

namespace pushpull {

class Batcher {
 public:
  Batcher(size_t fusion_bytes, KeyTable& keys, CallTable& calls)
      : fusion_bytes_(fusion_bytes), keys_(keys), calls_(calls) {}

  // A call that every rank has announced alike. Two calls of one key may work on the same memory:
  // the second comes up for a batch only after the first has been cut to its end, and never shares
  // one with it.
  void add(Slot slot);
  bool empty() const { return active_.empty(); }
  size_t waiting() const { return waiting_; }

  // Fills kind and entries of a batch (not empty()): the most urgent call and whatever may go with
  // it. Calls that it finishes end in the call table.
  void cut(Batch* batch);

 private:
  struct Entry {
    int32_t priority;
    uint64_t order;  // of readiness
    Slot slot;
    // For a max-heap: the most urgent on top, the longest ready among equals.
    friend bool operator<(const Entry& a, const Entry& b) {
      return a.priority != b.priority ? a.priority < b.priority : a.order > b.order;
    }
  };
  // Ready calls of one kind, root and scales.
  struct Exchange {
    std::vector<Entry> heap;
    bool active = false;
  };
  // Of one key: whether a call of it is in a heap, and which come after it.
  struct Line {
    bool busy = false;
    size_t next = 0;  // in `behind`
    std::vector<Entry> behind;
  };

  void push(const Entry& entry);
  void finish(const Entry& entry);
  uint32_t most_urgent() const;
  bool take_piece(Slot slot, uint64_t* room, std::vector<BatchEntry>* entries);

  uint64_t fusion_bytes_;
  KeyTable& keys_;
  CallTable& calls_;
  std::vector<Exchange> exchanges_;  // by Variant::exchange
  std::vector<uint32_t> active_;     // those with calls
  std::vector<Line> lines_;          // by key
  std::vector<Entry> released_;      // scratch of cut()
  uint64_t order_ = 0;
  size_t waiting_ = 0;
};

}  // namespace pushpull
