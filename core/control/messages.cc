#include "core/control/messages.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "core/control/wire.h"

namespace pushpull {
namespace {

// Type bytes: the position in the variant, from 1 and from 65. New messages go to the end.
constexpr uint8_t kFirstFromRank = 1;
constexpr uint8_t kFirstToRank = 65;
constexpr uint64_t kGroup = 0;  // the only group of a connection so far
constexpr size_t kLengthBytes = 4;
constexpr size_t kMaxCallsPerFrame = 64u << 10;
constexpr size_t kMaxDimensions = 64;

// Zero-element shapes too: the other dimensions alone must not overflow where bytes are counted.
bool sane_shape(const std::vector<int64_t>& shape) {
  if (shape.size() > kMaxDimensions) return false;
  uint64_t elements = 1;
  for (const int64_t d : shape) {
    if (d < 0) return false;
    if (__builtin_mul_overflow(elements, static_cast<uint64_t>(std::max<int64_t>(d, 1)), &elements))
      return false;
  }
  return elements <= (uint64_t{1} << 59);
}

}  // namespace

// ---- the fields of every message, for both directions ----
// (Outside the unnamed namespace: Writer::list and Reader::list find them by argument lookup.)

template <class A>
void fields(A& a, typename A::template Of<Signature>& m) {
  a.choice(m.dtype, DType::kBfloat16);
  a.list(m.shape);
  a.number(m.root);
  a.real(m.reduce.prescale);
  a.real(m.reduce.postscale);
  if constexpr (std::is_same_v<A, wire::Reader>) {
    if (!sane_shape(m.shape)) a.fail("a shape is impossible");
  }
}

template <class A>
void fields(A& a, typename A::template Of<Member>& m) {
  a.number(m.rank);
  a.bytes(m.host);
  a.number(m.pid);
  a.bytes(m.boot_id);
  a.number(m.network_namespace);
  a.bytes(m.address);
}

template <class A>
void fields(A& a, typename A::template Of<Announcement>& m) {
  a.number(m.id);
  a.number(m.call);
  a.number(m.priority);
}

template <class A>
void fields(A& a, typename A::template Of<BatchEntry>& m) {
  a.number(m.id);
  a.number(m.call);
  a.number(m.begin);
  a.number(m.end);
  a.flag(m.last);
}

template <class A>
void fields(A&, typename A::template Of<Connected>&) {}
template <class A>
void fields(A&, typename A::template Of<Goodbye>&) {}
template <class A>
void fields(A&, typename A::template Of<Heartbeat>&) {}
template <class A>
void fields(A&, typename A::template Of<Explain>&) {}
template <class A>
void fields(A&, typename A::template Of<Ready>&) {}
template <class A>
void fields(A&, typename A::template Of<Farewell>&) {}
template <class A>
void fields(A&, typename A::template Of<CoordinatorHeartbeat>&) {}

template <class A>
void fields(A& a, typename A::template Of<Explanation>& m) {
  a.text(m.text);
}
template <class A>
void fields(A& a, typename A::template Of<LocalMemory>& m) {
  a.flag(m.shared);
}
template <class A>
void fields(A& a, typename A::template Of<Hosts>& m) {
  a.list(m.hosts);
}

template <class A>
void fields(A& a, typename A::template Of<Define>& m) {
  a.number(m.id);
  a.choice(m.kind, CallKind::kJoin);
  a.bytes(m.key);
  fields(a, m.signature);
}

template <class A>
void fields(A& a, typename A::template Of<Announce>& m) {
  a.list(m.calls);
}

template <class A>
void fields(A& a, typename A::template Of<Withdraw>& m) {
  a.choice(m.kind, CallKind::kJoin);
  a.bytes(m.key);
  a.number(m.call);
  a.text(m.reason);
}

template <class A>
void fields(A& a, typename A::template Of<Progress>& m) {
  a.number(m.finished);
}

template <class A>
void fields(A& a, typename A::template Of<Evidence>& m) {
  a.number(m.batch);
  a.number(m.suspect);
  a.text(m.message);
}

template <class A>
void fields(A& a, typename A::template Of<GiveUp>& m) {
  a.text(m.reason);
}

template <class A>
void fields(A& a, typename A::template Of<Welcome>& m) {
  a.bytes(m.run);
  a.number(m.generation);
  a.list(m.members);
}

template <class A>
void fields(A& a, typename A::template Of<Name>& m) {
  a.number(m.id);
  a.choice(m.kind, CallKind::kJoin);
  a.bytes(m.key);
}

template <class A>
void fields(A& a, typename A::template Of<StandIn>& m) {
  a.number(m.id);
  a.number(m.call);
  fields(a, m.signature);
}

template <class A>
void fields(A& a, typename A::template Of<Batch>& m) {
  a.number(m.number);
  a.choice(m.kind, CallKind::kJoin);
  a.list(m.entries);
}

template <class A>
void error_code(A& a, typename A::template Of<ErrorCode>& code) {
  a.choice(code, ErrorCode::kAborted);
  if constexpr (std::is_same_v<A, wire::Reader>) {
    if (static_cast<int>(code) == 0) {
      a.fail("an error has no code");
      code = ErrorCode::kAborted;
    }
  }
}

template <class A>
void fields(A& a, typename A::template Of<Failed>& m) {
  a.number(m.id);
  a.number(m.call);
  error_code(a, m.code);
  a.number(m.culprit);
  a.text(m.message);
}

template <class A>
void fields(A& a, typename A::template Of<Warning>& m) {
  a.text(m.message);
}

template <class A>
void fields(A& a, typename A::template Of<Aborted>& m) {
  error_code(a, m.code);
  a.number(m.culprit);
  a.flag(m.restartable);
  a.text(m.message);
}

namespace {

void set_length(std::string* out, size_t start) {
  auto length = static_cast<uint32_t>(out->size() - start - kLengthBytes);
  for (size_t i = 0; i < kLengthBytes; ++i, length >>= 8)
    (*out)[start + i] = static_cast<char>(length);
}

template <class Body>
void write_frame(std::string* out, uint8_t type, const Body& body) {
  const size_t start = out->size();
  out->append(kLengthBytes, '\0');
  wire::Writer writer(out);
  writer.byte(type);
  writer.varint(kGroup);
  body(writer);
  set_length(out, start);
}

template <class Variant>
void write_message(const Variant& message, uint8_t first, std::string* out) {
  const auto type = static_cast<uint8_t>(first + message.index());
  write_frame(out, type, [&](wire::Writer& writer) {
    std::visit([&](const auto& m) { fields(writer, m); }, message);
  });
}

// A frame may hold only so much: what a busy rank has to announce goes in several.
void write_announce(const Announce& message, uint8_t type, std::string* out) {
  std::span<const Announcement> rest(message.calls);
  do {
    const auto part = rest.first(std::min(rest.size(), kMaxCallsPerFrame));
    rest = rest.subspan(part.size());
    write_frame(out, type, [&](wire::Writer& writer) {
      writer.varint(part.size());
      for (const Announcement& call : part) fields(writer, call);
    });
  } while (!rest.empty());
}

template <class Variant, size_t I = 0>
bool read_alternative(size_t index, wire::Reader& reader, Variant& message) {
  if constexpr (I == std::variant_size_v<Variant>) {
    return false;
  } else {
    if (index != I) return read_alternative<Variant, I + 1>(index, reader, message);
    fields(reader, message.template emplace<I>());
    return true;
  }
}

tl::unexpected<Error> malformed(std::string_view what) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("malformed control message: {}", what));
}

template <class Variant>
Result<std::optional<Decoded<Variant>>> read_message(std::string_view bytes, uint8_t first) {
  if (bytes.size() < kLengthBytes) return std::nullopt;
  uint32_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    length |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  if (length == 0) return malformed("it is empty");
  if (length > kMaxFrameBytes)
    return malformed(fmt::format("it claims {} bytes, {} are allowed", length, kMaxFrameBytes));
  if (bytes.size() - kLengthBytes < length) return std::nullopt;

  wire::Reader reader(bytes.substr(kLengthBytes, length));
  const uint8_t type = reader.byte();
  const uint64_t group = reader.varint();
  Decoded<Variant> decoded{.message = {}, .bytes = kLengthBytes + length};
  if (group != kGroup) return malformed("it is for an unknown group");
  if (type < first || !read_alternative(type - first, reader, decoded.message))
    return malformed(fmt::format("its type {} is unknown", type));
  if (reader.error() != nullptr) return malformed(reader.error());
  if (!reader.at_end()) return malformed("bytes follow its last field");
  return decoded;
}

}  // namespace

std::string_view to_string(CallKind kind) {
  switch (kind) {
    case CallKind::kPushPull:
      return "pushpull";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kJoin:
      return "join";
  }
  return "unknown";
}

std::string Signature::describe(CallKind kind) const {
  std::string text = fmt::format("{} ({})", pushpull::to_string(dtype), fmt::join(shape, ", "));
  if (kind == CallKind::kBroadcast) text += fmt::format(" from root {}", root);
  if (kind == CallKind::kPushPull && reduce.prescale != 1.0)
    text += fmt::format(", prescale {}", reduce.prescale);
  if (kind == CallKind::kPushPull && reduce.postscale != 1.0)
    text += fmt::format(", postscale {}", reduce.postscale);
  return text;
}

void encode(const FromRank& message, std::string* out) {
  if (const auto* announce = std::get_if<Announce>(&message)) {
    write_announce(*announce, static_cast<uint8_t>(kFirstFromRank + message.index()), out);
  } else {
    write_message(message, kFirstFromRank, out);
  }
}

void encode(const ToRank& message, std::string* out) { write_message(message, kFirstToRank, out); }

Result<std::optional<Decoded<FromRank>>> decode_from_rank(std::string_view bytes) {
  return read_message<FromRank>(bytes, kFirstFromRank);
}

Result<std::optional<Decoded<ToRank>>> decode_to_rank(std::string_view bytes) {
  return read_message<ToRank>(bytes, kFirstToRank);
}

std::string encode_joining(const Joining& joining) {
  std::string out;
  wire::Writer writer(&out);
  fields(writer, joining.member);
  writer.bytes(joining.settings);
  return out;
}

Result<Joining> decode_joining(std::string_view bytes) {
  wire::Reader reader(bytes);
  Joining joining;
  fields(reader, joining.member);
  reader.bytes(joining.settings);
  if (reader.error() != nullptr) return malformed(reader.error());
  if (!reader.at_end()) return malformed("bytes follow its last field");
  return joining;
}

}  // namespace pushpull
