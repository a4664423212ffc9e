// Handing errors to MXNet's engine without breaking it.
//
// The engine keeps a list of pending errors in a vector that it reads and extends on several
// threads without a lock. Two things make that safe for our errors: we extend it on one thread at a
// time, and it has room, so that extending it never moves what others are reading.
#pragma once

#include <span>
#include <string>

#include "mxnet_binding/bridge/failure.h"
#include "mxnet_binding/bridge/mxnet_library.h"

namespace pushpull::bridge {

// For MXNet from 2.0 on: tells the engine that an operation has started.
void started(const EngineCallback& on_start);

// Whoever reads what the operation writes gets CollectiveError with this sentence.
void complete_with_error(const MxnetLibrary& library, const EngineCallback& on_complete,
                         const std::string& sentence);

// Makes room for about 1,000 more errors: fails that many operations on `scratch`, arrays that
// nobody else uses, and reads each error. Not for NaiveEngine, which keeps no errors.
[[nodiscard]] Result<void> make_room_for_errors(const MxnetLibrary& library,
                                                std::span<NDArrayHandle> scratch);

}  // namespace pushpull::bridge
