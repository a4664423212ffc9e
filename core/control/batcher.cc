#include "core/control/batcher.h"

#include <algorithm>

namespace pushpull {
namespace {

constexpr uint64_t kPieceAlign = 16;       // elements, as slice_length()
constexpr size_t kMaxEntries = 64u << 10;  // of a batch: a frame must hold them

}  // namespace

void Batcher::add(Slot slot) {
  const GroupCall& call = calls_[slot];
  const Entry entry{call.priority, order_++, slot};
  ++waiting_;
  if (call.key >= lines_.size()) lines_.resize(call.key + 1);
  Line& line = lines_[call.key];
  if (line.busy) {
    line.behind.push_back(entry);
    return;
  }
  line.busy = true;
  push(entry);
}

void Batcher::push(const Entry& entry) {
  const GroupCall& call = calls_[entry.slot];
  const uint32_t index = keys_[call.key].variants[call.variant].exchange;
  if (index >= exchanges_.size()) exchanges_.resize(index + 1);
  Exchange& exchange = exchanges_[index];
  exchange.heap.push_back(entry);
  std::push_heap(exchange.heap.begin(), exchange.heap.end());
  if (!exchange.active) {
    exchange.active = true;
    active_.push_back(index);
  }
}

uint32_t Batcher::most_urgent() const {
  return *std::max_element(active_.begin(), active_.end(), [&](uint32_t a, uint32_t b) {
    return exchanges_[a].heap.front() < exchanges_[b].heap.front();
  });
}

void Batcher::cut(Batch* batch) {
  const uint32_t index = most_urgent();
  auto& heap = exchanges_[index].heap;
  batch->kind = keys_[calls_[heap.front().slot].key].kind;
  batch->entries.clear();
  const size_t limit = waits_for_earlier(batch->kind) ? 1 : kMaxEntries;
  uint64_t room = fusion_bytes_;
  while (!heap.empty() && batch->entries.size() < limit) {
    const Entry top = heap.front();
    if (!take_piece(top.slot, &room, &batch->entries)) break;
    if (!batch->entries.back().last) break;
    std::pop_heap(heap.begin(), heap.end());
    heap.pop_back();
    finish(top);
  }
  if (heap.empty()) {
    exchanges_[index].active = false;
    active_.erase(std::find(active_.begin(), active_.end(), index));
  }
  for (const Entry& entry : released_) push(entry);
  released_.clear();
}

void Batcher::finish(const Entry& entry) {
  const GroupCall& call = calls_[entry.slot];
  Line& line = lines_[call.key];
  if (line.next < line.behind.size()) {
    released_.push_back(line.behind[line.next++]);
  } else {
    line.busy = false;
    line.next = 0;
    line.behind.clear();
  }
  --waiting_;
  calls_.end(call.key, call.number);
}

// false where nothing more fits. What fits whole goes whole; only a call that is larger than a
// batch of its own is cut.
bool Batcher::take_piece(Slot slot, uint64_t* room, std::vector<BatchEntry>* entries) {
  GroupCall& call = calls_[slot];
  const Variant& v = keys_[call.key].variants[call.variant];
  const uint64_t begin = call.begin;
  const uint64_t rest = std::min((v.range - begin) * v.width, v.bytes);
  if (rest <= *room) {
    *room -= rest;
    entries->push_back({call.key, call.number, begin, v.range, true});
    return true;
  }
  if (!entries->empty()) return false;
  const uint64_t fitting = *room / v.width / kPieceAlign * kPieceAlign;
  const uint64_t length = std::min(std::max(fitting, kPieceAlign), v.range - begin);
  call.begin = begin + length;
  *room = 0;
  entries->push_back({call.key, call.number, begin, call.begin, call.begin == v.range});
  return true;
}

}  // namespace pushpull
