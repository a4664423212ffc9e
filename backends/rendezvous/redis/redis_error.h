// The one place that turns what can go wrong with a Redis into an Error in words.
#pragma once

#include <string>
#include <string_view>

#include <tl/expected.hpp>

#include "backends/rendezvous/redis/redis_protocol.h"
#include "core/error.h"

namespace pushpull::redis {

// What went wrong in one attempt, and what that means for the next.
struct Fault {
  Error error;
  bool retry = false;         // another attempt may go better
  bool reconnect = true;      // the connection cannot be used any more
  std::string_view advice{};  // what to do where retrying did not help; may be empty

  // It was given no time to become another outcome. Such errors have the code Timeout, others not.
  bool timed_out() const { return error.code() == ErrorCode::kTimeout; }
};

template <class T>
using Attempt = tl::expected<T, Fault>;

// What was asked of whom; for sentences.
struct Question {
  std::string server;          // "redis://host:6379/0"
  std::string user;            // empty: "default"
  std::string_view command{};  // "GET"
  std::string_view inner{};    // the commands inside a script
  std::string_view key{};
};

// An error reply. The server's own words are shown only where nothing secret can be in them.
Fault reply_fault(std::string_view text, const Question& question);
// A reply of a kind that the command cannot have.
Fault odd_reply_fault(const Question& question);

// The host name means nothing (yet); `why` is the lookup's.
Fault unresolved_fault(const Question& question, const Error& why);
// No connection; `reason` is errno's text.
Fault unreachable_fault(const Question& question, std::string_view reason);
// The connection broke while a reply was awaited; `reason` as in "closed the connection".
Fault broken_fault(const Question& question, std::string_view reason);
// No answer in time.
Fault silent_fault(const Question& question);
// The other side speaks TLS.
Fault tls_fault(const Question& question);
// The other side is no Redis; `head`: the first bytes it sent.
Fault not_redis_fault(const Question& question, std::string_view head);

// "pushpull:*" for "pushpull:job:run": what a permission would be given for.
std::string key_pattern(std::string_view key);

}  // namespace pushpull::redis
