#include "core/net/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

#include <fmt/format.h>

namespace pushpull {
namespace {

constexpr rlim_t kAnyProgram = 1024;

}  // namespace

Result<void> allow_descriptors(size_t count) {
  // What fits without is left alone: some programs close every number up to the limit.
  rlimit limit{};
  const rlim_t wanted = count <= kAnyProgram / 4 ? kAnyProgram : kAnyProgram + count;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return {};
  const rlim_t hard = limit.rlim_max;
  limit.rlim_cur = std::min(wanted, hard);
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && hard >= wanted) return {};
  return fail(ErrorCode::kUnavailable,
              fmt::format("this rank needs {} open files for its group, and the hard limit is {}; raise it "
                          "(ulimit -Hn, or the container's limits)",
                          wanted, hard));
}

}  // namespace pushpull
