#include "backends/shm/shm_plan.h"

#include <algorithm>

#include "backends/shm/shm_segment.h"

namespace pushpull {
namespace {

size_t next_line(size_t bytes) { return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine; }

}  // namespace

void ChunkPlan::for_sum(std::span<const Part> parts, int ranks) {
  clear(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const size_t length = slice_length(part, ranks);
    for (int s = 0; s < ranks; ++s) {
      const size_t start = static_cast<size_t>(s) * length;
      add(i, s, start + part.begin, std::min(start + part.end, part.total), size_of(part.dtype));
    }
  }
}

void ChunkPlan::for_broadcast(std::span<const Part> parts) {
  clear(parts.size());
  for (size_t i = 0; i < parts.size(); ++i)
    add(i, 0, parts[i].begin, parts[i].end, size_of(parts[i].dtype));
}

void ChunkPlan::clear(size_t parts) {
  pieces_.clear();
  chunks_.clear();
  open_.assign(parts, 0);
}

void ChunkPlan::add(size_t part, int slice, size_t first, size_t end, size_t width) {
  while (first < end) {
    if (chunks_.empty() || next_line(chunks_.back().bytes) == chunk_bytes_)
      chunks_.push_back({pieces_.size(), 0, 0});
    Chunk& chunk = chunks_.back();
    const size_t at = next_line(chunk.bytes);
    const size_t count = std::min(end - first, (chunk_bytes_ - at) / width);
    pieces_.push_back({part, slice, first, count, at});
    ++chunk.pieces;
    chunk.bytes = at + count * width;
    ++open_[part];
    first += count;
  }
}

}  // namespace pushpull
