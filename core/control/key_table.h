// The keys of a group: one number per (kind, key), the signatures seen for it, and each rank's own
// numbers.
//
// Names and signatures are looked up when a rank defines them, once; announcements then go by
// number.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/control/messages.h"
#include "core/error.h"

namespace pushpull {

inline constexpr uint32_t kNoKey = ~uint32_t{0};

// One signature of a key, with what cutting batches needs of it.
struct Variant {
  Signature signature;
  uint32_t exchange = 0;  // calls with equal numbers (kind, root, scales) may share a batch
  uint64_t range = 0;     // what BatchEntry::begin and end go up to
  uint64_t width = 0;     // bytes of the whole tensor per element of that range
  uint64_t bytes = 0;     // of the whole tensor
};

struct Key {
  CallKind kind = CallKind::kPushPull;
  std::string name;
  bool told = false;        // its Name has been sent
  uint32_t other = kNoKey;  // the broadcast of the same name for a pushpull, and the reverse
  std::vector<Variant> variants;
};

class KeyTable {
 public:
  explicit KeyTable(int size) : size_(size), slices_(size), locals_(static_cast<size_t>(size)) {}

  // Into how many slices a sum cuts a tensor: one per rank unless said before the first definition.
  void set_slices(int slices) { slices_ = slices; }

  // What a rank's own number stands for.
  struct Local {
    uint32_t key = kNoKey;
    uint32_t variant = 0;
  };

  // Errors say what is wrong with the definition, as the end of "sent a malformed message: …".
  [[nodiscard]] Result<void> define(int rank, const Define& definition);
  // nullptr where the rank has not defined `id`.
  const Local* find(int rank, uint32_t id) const {
    const auto& mine = locals_[static_cast<size_t>(rank)];
    return id < mine.size() && mine[id].key != kNoKey ? &mine[id] : nullptr;
  }
  // The number of (kind, key), new where it was not known.
  [[nodiscard]] Result<uint32_t> number(CallKind kind, const std::string& name);

  Key& operator[](uint32_t key) { return keys_[key]; }
  const Key& operator[](uint32_t key) const { return keys_[key]; }
  size_t count() const { return keys_.size(); }
  std::string describe_call(uint32_t key, uint64_t call) const;

 private:
  uint32_t variant_of(uint32_t key, const Signature& signature);
  Variant make_variant(CallKind kind, const Signature& signature);

  int size_;
  int slices_;
  std::vector<Key> keys_;
  std::unordered_map<std::string, uint32_t> numbers_[kNumCallKinds];  // by kind
  std::map<std::tuple<CallKind, int32_t, uint64_t, uint64_t>, uint32_t> exchanges_;
  std::vector<std::vector<Local>> locals_;  // [rank][id]
};

}  // namespace pushpull
