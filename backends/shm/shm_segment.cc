#include "backends/shm/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace pushpull {
namespace {

constexpr size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t head_bytes(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  return round_up(sizeof(SegmentHeader) + n * sizeof(RankSignals) + (n - 1) * kPairBytes, kPage);
}

size_t segment_bytes(int ranks, size_t chunk_bytes) {
  return round_up(head_bytes(ranks) + static_cast<size_t>(ranks) * ShmSegment::kSlots * chunk_bytes,
                  kPage);
}

tl::unexpected<Error> system_error(const char* what) {
  return fail(ErrorCode::kUnavailable, fmt::format("{}: {}", what, errno_text(errno)));
}

}  // namespace

ShmSegment::ShmSegment(Socket memory, int ranks, size_t chunk_bytes, size_t bytes, char* start)
    : memory_(std::move(memory)),
      ranks_(ranks),
      chunk_bytes_(chunk_bytes),
      bytes_(bytes),
      start_(start),
      slots_(start + head_bytes(ranks)) {}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : memory_(std::move(other.memory_)),
      ranks_(other.ranks_),
      chunk_bytes_(other.chunk_bytes_),
      bytes_(other.bytes_),
      start_(std::exchange(other.start_, nullptr)),
      slots_(other.slots_) {}

ShmSegment::~ShmSegment() {
  if (start_ != nullptr) ::munmap(start_, bytes_);
}

Result<ShmSegment> ShmSegment::map(Socket memory, int ranks, size_t chunk_bytes) {
  const size_t bytes = segment_bytes(ranks, chunk_bytes);
  void* start = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd(), 0);
  if (start == MAP_FAILED) return system_error("mapping shared memory");
  return ShmSegment(std::move(memory), ranks, chunk_bytes, bytes, static_cast<char*>(start));
}

Result<ShmSegment> ShmSegment::create(int ranks, size_t chunk_bytes) {
  chunk_bytes = round_up(chunk_bytes, kCacheLine);
  Socket memory(::memfd_create("pushpull", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) return system_error("memfd_create");
  if (::ftruncate(memory.fd(), static_cast<off_t>(segment_bytes(ranks, chunk_bytes))) != 0)
    return system_error("sizing shared memory");
  if (::fcntl(memory.fd(), F_ADD_SEALS, kSeals) != 0) return system_error("sealing shared memory");
  auto segment = map(std::move(memory), ranks, chunk_bytes);
  if (!segment) return segment;
  // New memory is zero, which is how all counters start.
  segment->header().chunk_bytes = chunk_bytes;
  return segment;
}

Result<ShmSegment> ShmSegment::open(Socket memory, int ranks, size_t chunk_bytes) {
  chunk_bytes = round_up(chunk_bytes, kCacheLine);
  struct stat info {};
  if (::fstat(memory.fd(), &info) != 0) return system_error("asking for the size of shared memory");
  const int seals = ::fcntl(memory.fd(), F_GET_SEALS);
  if (seals < 0) return system_error("asking for the seals of shared memory");
  if ((seals & kSeals) != kSeals)
    return fail(ErrorCode::kUnavailable, "the shared memory is not sealed against resizing");
  if (static_cast<size_t>(info.st_size) != segment_bytes(ranks, chunk_bytes))
    return fail(
        ErrorCode::kInvalidArgument,
        "the shared memory has another size than expected; PUSHPULL_SHM_CHUNK_BYTES must be "
        "the same on every rank");
  auto segment = map(std::move(memory), ranks, chunk_bytes);
  if (segment && segment->header().chunk_bytes != chunk_bytes)
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("PUSHPULL_SHM_CHUNK_BYTES is {} on one rank and {} on another",
                            segment->header().chunk_bytes.load(), chunk_bytes));
  return segment;
}

}  // namespace pushpull
