// A list of parts as a stream of chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/collective.h"

namespace pushpull {

// Consecutive elements of one part, and of one of its slices, in a chunk.
struct Piece {
  size_t part;
  int slice;     // 0 for a broadcast
  size_t first;  // element of the tensor
  size_t count;
  size_t at;     // byte of the chunk, at the start of a cache line
};

struct Chunk {
  size_t first_piece;
  size_t pieces;
  size_t bytes;  // up to the end of the last piece
};

// Small parts share a chunk, large ones fill many. Keeps its memory from call to call.
class ChunkPlan {
 public:
  explicit ChunkPlan(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}

  void for_sum(std::span<const Part> parts, int ranks);
  void for_broadcast(std::span<const Part> parts);

  size_t size() const { return chunks_.size(); }
  const Chunk& operator[](size_t i) const { return chunks_[i]; }
  std::span<const Piece> pieces(const Chunk& chunk) const {
    return {pieces_.data() + chunk.first_piece, chunk.pieces};
  }

  // Pieces of part i that have not ended. The last piece_ended() of a part returns true.
  bool empty(size_t part) const { return open_[part] == 0; }
  bool piece_ended(const Piece& piece) { return --open_[piece.part] == 0; }

 private:
  void clear(size_t parts);
  void add(size_t part, int slice, size_t first, size_t end, size_t width);

  const size_t chunk_bytes_;
  std::vector<Piece> pieces_;
  std::vector<Chunk> chunks_;
  std::vector<size_t> open_;
};

}  // namespace pushpull
