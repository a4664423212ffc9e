#include "core/control/call_table.h"

#include <algorithm>
#include <bit>

namespace pushpull {
namespace {

constexpr uint64_t kMaxAhead = 1u << 20;  // call numbers of one key
constexpr size_t kMaxPlaces = 16u << 20;  // of all keys

}  // namespace

CallTable::CallTable(int size)
    : size_(size), words_(rank_words(size)), marks_(static_cast<size_t>(size)) {}

bool CallTable::in_reach(uint32_t key, uint64_t number) const {
  const uint64_t base = key < windows_.size() ? windows_[key].base : 1;
  return number < base + kMaxAhead && places_ + (number < base ? 0 : number - base) < kMaxPlaces;
}

Slot& CallTable::place(Window& window, uint64_t number) {
  const size_t i = window.head + (number - window.base);
  if (i >= window.slots.size()) {
    places_ += i + 1 - window.slots.size();
    window.slots.resize(i + 1, kNoCall);
  }
  return window.slots[i];
}

Slot CallTable::open(uint32_t key, uint64_t number, Clock::time_point now) {
  if (key >= windows_.size()) windows_.resize(key + 1);
  Slot slot;
  if (free_.empty()) {
    slot = static_cast<Slot>(calls_.size());
    calls_.emplace_back();
    bits_.resize(bits_.size() + words_);
  } else {
    slot = free_.back();
    free_.pop_back();
    std::fill_n(&bits_[slot * words_], words_, 0);
  }
  GroupCall& call = calls_[slot];
  auto deviants = std::move(call.deviants);
  deviants.clear();
  call = {.number = number,
          .key = key,
          .since = now,
          .next_warning = now,
          .deviants = std::move(deviants)};
  call.older = newest_;
  (newest_ == kNoCall ? oldest_ : calls_[newest_].newer) = slot;
  newest_ = slot;
  place(windows_[key], number) = slot;
  return slot;
}

bool CallTable::announce(Slot slot, int rank, uint32_t variant) {
  uint64_t& word = bits_[slot * words_ + static_cast<size_t>(rank) / 64];
  const uint64_t bit = uint64_t{1} << (rank % 64);
  if ((word & bit) != 0) return false;
  word |= bit;
  GroupCall& call = calls_[slot];
  if (call.stage != Stage::kFailing) ++marks_[static_cast<size_t>(rank)];
  if (call.announced++ == 0) {
    call.variant = variant;
  } else if (variant != call.variant) {
    call.deviants.emplace_back(rank, variant);
  }
  return true;
}

void CallTable::make_ready(Slot slot) {
  unlink(slot);
  calls_[slot].stage = Stage::kReady;
}

void CallTable::make_failing(Slot slot) {
  unlink(slot);
  uncount(slot);
  calls_[slot].stage = Stage::kFailing;
}

void CallTable::uncount(Slot slot) {
  for (size_t w = 0; w < words_; ++w)
    for (uint64_t bits = bits_[slot * words_ + w]; bits != 0; bits &= bits - 1)
      --marks_[w * 64 + static_cast<size_t>(std::countr_zero(bits))];
}

void CallTable::unlink(Slot slot) {
  GroupCall& call = calls_[slot];
  (call.older == kNoCall ? oldest_ : calls_[call.older].newer) = call.newer;
  (call.newer == kNoCall ? newest_ : calls_[call.newer].older) = call.older;
  call.older = call.newer = kNoCall;
}

void CallTable::end(uint32_t key, uint64_t number) {
  if (key >= windows_.size()) windows_.resize(key + 1);
  Window& window = windows_[key];
  if (number < window.base) return;
  Slot& at = place(window, number);
  const Slot slot = std::exchange(at, kEndedCall);
  if (slot != kNoCall && slot != kEndedCall) {
    const Stage stage = calls_[slot].stage;
    if (stage == Stage::kWaiting) unlink(slot);
    if (stage != Stage::kFailing) {
      if (complete(slot)) {
        ++full_ends_;
      } else {
        uncount(slot);
      }
    }
    free_.push_back(slot);
  }
  close_front(window);
}

void CallTable::close_front(Window& window) {
  const size_t before = window.slots.size() - window.head;
  while (window.head < window.slots.size() && window.slots[window.head] == kEndedCall) {
    ++window.head;
    ++window.base;
  }
  places_ -= before - (window.slots.size() - window.head);
  if (window.head == window.slots.size()) {
    window.slots.clear();
    window.head = 0;
  } else if (window.head >= 64 && window.head * 2 >= window.slots.size()) {
    window.slots.erase(window.slots.begin(),
                       window.slots.begin() + static_cast<ptrdiff_t>(window.head));
    window.head = 0;
  }
}

std::vector<int> CallTable::missing(Slot slot) const {
  std::vector<int> ranks;
  const auto set = announcers(slot);
  for (int r = 0; r < size_; ++r)
    if (!has_rank(set, r)) ranks.push_back(r);
  return ranks;
}

Slot CallTable::first_waiting(uint32_t key) const {
  if (key >= windows_.size()) return kNoCall;
  const Window& w = windows_[key];
  for (size_t i = w.head; i < w.slots.size(); ++i) {
    const Slot slot = w.slots[i];
    if (slot != kNoCall && slot != kEndedCall && calls_[slot].stage == Stage::kWaiting) return slot;
  }
  return kNoCall;
}

}  // namespace pushpull
