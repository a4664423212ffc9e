// The memory that the ranks of one host share: anonymous, of fixed size, gone with the processes.
//
// Nothing in it is believed but counters and flags: sizes and places are computed by each rank for
// itself, so that what another process writes there cannot lead anybody outside of the mapping.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "core/group.h"
#include "core/net/socket.h"

namespace pushpull {

inline constexpr size_t kCacheLine = 64;

// A counter that only grows, written by one rank. Others wait for it on a futex at its lower half.
struct alignas(kCacheLine) Signal {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> waiters;
};

// What one rank tells the others; the counters count chunks over the life of the group.
struct RankSignals {
  Signal put;                                      // its slot holds its inputs
  Signal reduced;                                  // its slot holds the sum of its share
  Signal done;                                     // it needs nobody's slot any more
  alignas(kCacheLine) std::atomic<uint32_t> left;  // 1: it has closed the group
  std::atomic<uint64_t> proof[2];                  // see shm_proof.h
  std::atomic<int32_t> core;                       // where its last step was made; a hint
};

struct SegmentHeader {
  std::atomic<uint64_t> chunk_bytes;              // of the rank that made it
  alignas(kCacheLine) std::atomic<int32_t> lost;  // 0, or 1 + the first rank that was missed
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

class ShmSegment {
 public:
  // Chunks that a rank may be ahead of the slowest one.
  static constexpr uint64_t kSlots = 8;

  // `chunk_bytes` is rounded up to whole cache lines.
  [[nodiscard]] static Result<ShmSegment> create(int ranks, size_t chunk_bytes);
  // Maps what another rank made with the same arguments; `memory` is its descriptor. Fails where it
  // has another size or might change its size.
  [[nodiscard]] static Result<ShmSegment> open(Socket memory, int ranks, size_t chunk_bytes);

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment();

  // The memory's descriptor, until forgotten: the mapping needs none.
  int descriptor() const { return memory_.fd(); }
  void forget_descriptor() { memory_.close(); }

  int ranks() const { return ranks_; }
  size_t chunk_bytes() const { return chunk_bytes_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(start_); }
  RankSignals& signals(int rank) const {
    return reinterpret_cast<RankSignals*>(start_ + sizeof(SegmentHeader))[rank];
  }
  // kPairBytes of rank 0 and another rank, for nothing of ours.
  std::byte* pair(int rank) const {
    return reinterpret_cast<std::byte*>(&signals(ranks_)) +
           static_cast<size_t>(rank - 1) * kPairBytes;
  }
  // Where rank `rank` puts chunk number `chunk`: chunk_bytes() bytes, page aligned if they are
  // pages.
  char* slot(int rank, uint64_t chunk) const {
    return slots_ + (static_cast<size_t>(rank) * kSlots + chunk % kSlots) * chunk_bytes_;
  }

 private:
  ShmSegment(Socket memory, int ranks, size_t chunk_bytes, size_t bytes, char* start);
  static Result<ShmSegment> map(Socket memory, int ranks, size_t chunk_bytes);

  Socket memory_;
  int ranks_;
  size_t chunk_bytes_;
  size_t bytes_;
  char* start_;
  char* slots_;
};

}  // namespace pushpull
