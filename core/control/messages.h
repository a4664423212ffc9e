// What travels on the control plane, and how it is written.
//
// A frame is a 4-byte little-endian length (of what follows, at most kMaxFrameBytes), one type byte
// and the fields. Integers are varints (signed ones zigzag), strings and lists are length-prefixed.
// Decoders check every length and never read past the frame. The wire carries a group id from the start, so
// that a host's leader can speak for several ranks and several groups can share a connection later.
//
// Keys: a rank numbers each distinct (kind, key, signature) it uses and defines the number once;
// afterwards announcements are three small integers. The coordinator numbers (kind, key) for the whole
// group and names each number once to every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/collective.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/group.h"

namespace pushpull {

inline constexpr size_t kMaxFrameBytes = 16u << 20;

enum class CallKind : uint8_t { kPushPull = 0, kBroadcast = 1, kBarrier = 2, kJoin = 3 };
inline constexpr size_t kNumCallKinds = 4;
// Barrier and join move nothing, and are announced when all earlier calls of the rank have ended.
constexpr bool waits_for_earlier(CallKind kind) { return kind >= CallKind::kBarrier; }
std::string_view to_string(CallKind kind);  // "pushpull", …

// What must be equal on all ranks.
struct Signature {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  int32_t root = -1;  // broadcast only
  Reduce reduce;      // pushpull only
  friend bool operator==(const Signature&, const Signature&) = default;
  // "float32 (64, 3, 7, 7)", with root and scales where they are not the usual ones.
  std::string describe(CallKind kind) const;
};

// ---- rank -> coordinator ----
struct Connected {};                     // this rank's data plane is connected
struct Define {                          // before the first announcement that uses `id`
  uint32_t id = 0;                       // this rank's number
  CallKind kind = CallKind::kPushPull;
  std::string key;
  Signature signature;
};
struct Announcement {
  uint32_t id = 0;
  uint64_t call = 0;                     // how many-th call of (kind, key), from 1
  int32_t priority = 0;
};
struct Announce {
  std::vector<Announcement> calls;
};
struct Withdraw {                        // this call will never come from this rank
  CallKind kind = CallKind::kPushPull;
  std::string key;
  uint64_t call = 0;
  std::string reason;
};
struct Progress {                        // batches 1..finished are done on this rank
  uint64_t finished = 0;
};
struct Evidence {                        // this rank's data plane failed in `batch`
  uint64_t batch = 0;
  int32_t suspect = -1;                  // whom it saw failing, -1 unknown
  std::string message;
};
struct GiveUp {                          // abort(): the group ends with this reason
  std::string reason;
};
struct Goodbye {};                       // orderly leave: no call will come any more
struct Heartbeat {};
struct Explain {};                       // asks what the group waits for: a person wants to know
struct LocalMemory {                     // once, after the welcome, before Connected
  bool shared = false;                   // with all candidates (candidate_hosts()), proven
};

using FromRank = std::variant<Connected, Define, Announce, Withdraw, Progress, Evidence, GiveUp,
                              Goodbye, Heartbeat, Explain, LocalMemory>;

// ---- coordinator -> rank ----
struct Welcome {                         // all have joined
  std::string run;
  int32_t generation = 0;
  std::vector<Member> members;
};
struct Ready {};                         // every data plane is connected
struct Name {                            // before the first use of `id`
  uint32_t id = 0;                       // the group's number of (kind, key)
  CallKind kind = CallKind::kPushPull;
  std::string key;
};
struct BatchEntry {
  uint32_t id = 0;
  uint64_t call = 0;
  // Elements of each slice (pushpull) or of the tensor (broadcast), see Part. A call may come in several
  // pieces, in order; the piece with `last` ends it. Of a join: `begin` is the rank that joined last.
  uint64_t begin = 0;
  uint64_t end = 0;
  bool last = true;
};
struct Batch {
  uint64_t number = 0;                   // 1, 2, 3, … the same on every rank
  CallKind kind = CallKind::kPushPull;   // all entries: same kind, root and scales
  std::vector<BatchEntry> entries;
};
// This call fails on every rank and counts as made everywhere: a rank that gets it without having made
// (or reserved) the call goes on to the next number. Ranks that are only late get it when they come.
struct Failed {
  uint32_t id = 0;
  uint64_t call = 0;
  ErrorCode code = ErrorCode::kMismatch;
  int32_t culprit = -1;
  std::string message;
};
struct Warning {                         // to be logged: a stall, a rank that left
  std::string message;
};
struct Aborted {                         // the group has ended
  ErrorCode code = ErrorCode::kPeerLost;
  int32_t culprit = -1;
  bool restartable = false;
  std::string message;
};
struct Farewell {};                      // answer to Goodbye: everything this rank took part in is done
struct CoordinatorHeartbeat {};
struct Explanation {                     // answer to Explain: the coordinator's dump()
  std::string text;
};
struct Hosts {                           // every rank's LocalMemory is known, or does not matter
  std::vector<int32_t> hosts;            // of each rank, as Layout takes them
};
// To a rank that has joined: it takes part in this call with zeros, and the call counts as made. The
// batch follows.
struct StandIn {
  uint32_t id = 0;
  uint64_t call = 0;
  Signature signature;
};

using ToRank = std::variant<Welcome, Ready, Name, Batch, Failed, Warning, Aborted, Farewell,
                            CoordinatorHeartbeat, Explanation, Hosts, StandIn>;

// Appends a whole frame.
void encode(const FromRank& message, std::string* out);
void encode(const ToRank& message, std::string* out);

// Takes one frame off the front of `bytes` if it is complete: returns the message and the bytes it
// took; nullopt where more bytes are needed; InvalidArgument where it is malformed.
template <class Message>
struct Decoded {
  Message message;
  size_t bytes;
};
[[nodiscard]] Result<std::optional<Decoded<FromRank>>> decode_from_rank(std::string_view bytes);
[[nodiscard]] Result<std::optional<Decoded<ToRank>>> decode_to_rank(std::string_view bytes);

// What a rank says in its hello: who it is, and its settings that must be the same on every rank
// (core/agreement.h).
struct Joining {
  Member member;
  std::string settings;
};
std::string encode_joining(const Joining& joining);
[[nodiscard]] Result<Joining> decode_joining(std::string_view bytes);


}  // namespace pushpull
