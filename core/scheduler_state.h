// What the scheduler's two files share: scheduler.cc keeps the calls and agrees with the coordinator,
// scheduler_run.cc runs the batches.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/scheduler.h"

namespace pushpull {

// A reserved call. It leaves the table when it has ended, its caller has come for it, and the order
// of announcements has passed it.
struct Slot {
  uint64_t sequence = 0;  // order of reservation over all keys; 0: not reserved yet (it failed before)
  std::unique_ptr<Call> call;
  std::optional<Error> ended;
  bool claimed = false;  // submitted or withdrawn
};

struct KeyEntry {
  CallKind kind;
  std::string key;
  uint64_t next_number = 1;
  uint64_t next_announce = 1;
  std::map<uint64_t, Slot> slots;
  std::vector<std::pair<Signature, uint32_t>> definitions;
};

inline void complete(std::unique_ptr<Call> call, const Result<void>& result) {
  call->work->complete(result);
}

inline Error closed_error() { return Error(ErrorCode::kAborted, "the store is closed"); }

}  // namespace pushpull
