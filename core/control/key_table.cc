#include "core/control/key_table.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "core/collective.h"
#include "core/control/describe.h"

namespace pushpull {
namespace {

// Far above any model, far below what would hurt rank 0.
constexpr size_t kMaxKeys = 4u << 20;
constexpr size_t kMaxDefinitions = 1u << 20;  // of one rank
constexpr size_t kMaxVariants = 4096;         // of one key
// Numbers should be dense; how far ahead of the count one may be.
constexpr size_t kMaxGap = 64u << 10;

// nullopt where the shape is negative or too large for any memory.
std::optional<uint64_t> count_elements(const std::vector<int64_t>& shape) {
  uint64_t elements = 1;
  bool empty = false;
  for (const int64_t d : shape) {
    if (d < 0) return std::nullopt;
    empty = empty || d == 0;
    if (d > 0 && __builtin_mul_overflow(elements, static_cast<uint64_t>(d), &elements))
      return std::nullopt;
  }
  if (elements > uint64_t{1} << 59) return std::nullopt;
  return empty ? 0 : elements;
}

CallKind other_kind(CallKind kind) {
  return kind == CallKind::kPushPull ? CallKind::kBroadcast : CallKind::kPushPull;
}

}  // namespace

Result<void> KeyTable::define(int rank, const Define& definition) {
  auto& mine = locals_[static_cast<size_t>(rank)];
  const uint32_t id = definition.id;
  const Signature& signature = definition.signature;
  if (id >= kMaxDefinitions || id > mine.size() + kMaxGap)
    return fail(ErrorCode::kInvalidArgument, fmt::format("key number {} is out of range", id));
  if (find(rank, id) != nullptr)
    return fail(ErrorCode::kInvalidArgument, fmt::format("key number {} is defined twice", id));
  if (size_of(signature.dtype) == 0 || !count_elements(signature.shape))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("key {} has an impossible shape", quoted_key(definition.key)));
  if (definition.kind == CallKind::kBroadcast && (signature.root < 0 || signature.root >= size_))
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("key {} has root {} in a group of {}", quoted_key(definition.key),
                            signature.root, size_));
  auto key = number(definition.kind, definition.key);
  if (!key) return fail(key.error());
  const uint32_t variant = variant_of(*key, signature);
  if (variant >= kMaxVariants)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("key {} has too many signatures", quoted_key(definition.key)));
  if (id >= mine.size()) mine.resize(id + 1);
  mine[id] = {*key, variant};
  return {};
}

Result<uint32_t> KeyTable::number(CallKind kind, const std::string& name) {
  auto& numbers = numbers_[static_cast<size_t>(kind)];
  if (const auto known = numbers.find(name); known != numbers.end()) return known->second;
  if (keys_.size() >= kMaxKeys) return fail(ErrorCode::kInvalidArgument, "there are too many keys");
  const auto key = static_cast<uint32_t>(keys_.size());
  Key& added = keys_.emplace_back();
  added.kind = kind;
  added.name = name;
  numbers.emplace(name, key);
  if (!waits_for_earlier(kind)) {
    const auto& others = numbers_[static_cast<size_t>(other_kind(kind))];
    if (const auto other = others.find(name); other != others.end()) {
      keys_[key].other = other->second;
      keys_[other->second].other = key;
    }
  }
  return key;
}

uint32_t KeyTable::variant_of(uint32_t key, const Signature& signature) {
  auto& variants = keys_[key].variants;
  const auto known = std::find_if(variants.begin(), variants.end(),
                                  [&](const Variant& v) { return v.signature == signature; });
  const auto index = static_cast<uint32_t>(known - variants.begin());
  if (known == variants.end() && variants.size() < kMaxVariants)
    variants.push_back(make_variant(keys_[key].kind, signature));
  return index;
}

Variant KeyTable::make_variant(CallKind kind, const Signature& signature) {
  Variant v;
  v.signature = signature;
  const int32_t root = kind == CallKind::kBroadcast ? signature.root : -1;
  const Reduce reduce = kind == CallKind::kPushPull ? signature.reduce : Reduce{};
  const auto next = static_cast<uint32_t>(exchanges_.size());
  v.exchange = exchanges_
                   .try_emplace({kind, root, std::bit_cast<uint64_t>(reduce.prescale),
                                 std::bit_cast<uint64_t>(reduce.postscale)},
                                next)
                   .first->second;
  if (waits_for_earlier(kind)) return v;  // moves nothing
  const uint64_t elements = *count_elements(signature.shape);
  const uint64_t element_bytes = size_of(signature.dtype);
  v.bytes = elements * element_bytes;
  if (kind == CallKind::kPushPull) {
    v.range = slice_length(elements, slices_);
    v.width = element_bytes * static_cast<uint64_t>(slices_);
  } else {
    v.range = elements;
    v.width = element_bytes;
  }
  return v;
}

std::string KeyTable::describe_call(uint32_t key, uint64_t call) const {
  return pushpull::describe_call(keys_[key].kind, keys_[key].name, call);
}

}  // namespace pushpull
