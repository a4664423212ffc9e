// What travels between a store client and rank 0's server, behind the hello.
//
// A frame is a 4-byte little-endian length (of what follows, at most kMaxFrameBytes) and the
// fields. A connection carries one request at a time; a client that no longer waits for its answer
// closes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backends/rendezvous/limits.h"
#include "core/error.h"

namespace pushpull::tcp_store {

inline constexpr size_t kFrameHeadBytes = 4;
inline constexpr size_t kMaxFrameBytes = kMaxKeyBytes + kMaxValueBytes + 64;

enum class Operation : uint8_t { kSet = 1, kSetIfAbsent, kGet, kWait, kAdd, kRemoveIf };

struct Request {
  Operation operation = Operation::kGet;
  uint64_t number = 0;  // of this client's requests, from 1; a repeated kAdd is recognised by it
  std::string key;
  std::string value;  // for kWait: what is known
  int64_t delta = 0;  // for kAdd
};

struct Reply {
  std::optional<Error> error;
  std::optional<std::string> value;  // absent: no such key
  int64_t sum = 0;                   // of kAdd
};

// A whole frame.
std::string encode(const Request& request);
std::string encode(const Reply& reply);
// The length in a frame's head, of which `head` holds all bytes; nullopt where it is not allowed.
std::optional<size_t> frame_length(std::string_view head);
// A frame without its head; nullopt where it is malformed.
std::optional<Request> decode_request(std::string_view frame);
std::optional<Reply> decode_reply(std::string_view frame);

}  // namespace pushpull::tcp_store
