// Errors as values.
//
// Every function that can fail returns Result<T>. An Error carries a code that programs act on, one
// sentence that people read, and the culprit (which rank, on which host, for which key), so that
// every rank of a group can report the same failure in the same words.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

namespace pushpull {

enum class ErrorCode {
  kInvalidArgument = 1,  // the caller's mistake: unknown key, bad dtype, contradicting settings
  kUnsupported = 2,      // the call or combination is not part of the contract
  kUnavailable = 3,      // something outside is missing: a library, a server, a route
  kMismatch = 4,         // ranks called with different dtype, shape, operation or root; the group lives on
  kTimeout = 5,          // a deadline passed; the sentence names who is missing
  kPeerLost = 6,         // a rank died, went silent or left; sticky for the group
  kAborted = 7,          // this rank or the group was told to stop; sticky for the group
};

// "InvalidArgument", "PeerLost", ...
std::string_view to_string(ErrorCode code);

class Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  ErrorCode code() const { return code_; }
  // One sentence, without a code or a class name in front, complete on its own.
  const std::string& message() const { return message_; }

  // The culprit. rank is -1 and the strings are empty where unknown.
  int rank() const { return rank_; }
  const std::string& host() const { return host_; }
  const std::string& key() const { return key_; }

  Error& at_rank(int rank, std::string host = {});
  Error& at_key(std::string key);
  // Marks an error after which starting the job again helps (exit code 75): lost peers, and a run
  // that a newer one replaced.
  bool restartable() const { return restartable_ || code_ == ErrorCode::kPeerLost; }
  Error& make_restartable();

  // "<context>: <message>", same code and culprit. For adding where something happened.
  Error with_context(std::string_view context) const;

 private:
  ErrorCode code_;
  bool restartable_ = false;
  int rank_ = -1;
  std::string message_;
  std::string host_;
  std::string key_;
};

template <class T>
using Result = tl::expected<T, Error>;

// return fail(ErrorCode::kTimeout, "…");
inline tl::unexpected<Error> fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error(code, std::move(message)));
}
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

// errno as text, thread-safe: "Connection refused".
std::string errno_text(int error_number);

}  // namespace pushpull
