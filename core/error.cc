#include "core/error.h"

#include <system_error>

namespace pushpull {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "InvalidArgument";
    case ErrorCode::kUnsupported: return "Unsupported";
    case ErrorCode::kUnavailable: return "Unavailable";
    case ErrorCode::kMismatch: return "Mismatch";
    case ErrorCode::kTimeout: return "Timeout";
    case ErrorCode::kPeerLost: return "PeerLost";
    case ErrorCode::kAborted: return "Aborted";
  }
  return "Unknown";
}

Error& Error::at_rank(int rank, std::string host) {
  rank_ = rank;
  host_ = std::move(host);
  return *this;
}

Error& Error::at_key(std::string key) {
  key_ = std::move(key);
  return *this;
}

Error& Error::make_restartable() {
  restartable_ = true;
  return *this;
}

Error Error::with_context(std::string_view context) const {
  Error copy = *this;
  copy.message_ = std::string(context) + ": " + message_;
  return copy;
}

std::string errno_text(int error_number) {
  return std::error_code(error_number, std::generic_category()).message();
}

}  // namespace pushpull
