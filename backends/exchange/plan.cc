#include "backends/exchange/plan.h"

#include <algorithm>

namespace pushpull {
namespace {

constexpr size_t kAlign = 16;              // bytes between segments of a message
constexpr size_t kElements = 16;           // cuts fall on multiples, for the kernels' sake
constexpr size_t kOwnMessage = 16u << 10;  // copying less than this costs less than a message does

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

void Stream::reset(size_t chunk_bytes) {
  chunk_bytes_ = std::max(chunk_bytes, size_t{256});
  own_bytes_ = std::min(kOwnMessage, chunk_bytes_);
  single_ = false;
  filling_ = false;
  largest_ = 0;
  bytes_ = 0;
  segments_.clear();
  messages_.clear();
}

void Stream::open_message() { messages_.push_back({segments_.size(), 0, 0}); }

void Stream::add_segment(uint32_t part, size_t first, size_t count, size_t bytes) {
  Message& message = messages_.back();
  const size_t at = round_up(message.bytes, kAlign);
  segments_.push_back({part, first, count, at});
  ++message.segments;
  message.bytes = at + bytes;
  largest_ = std::max(largest_, message.bytes);
  bytes_ += bytes;
}

void Stream::append(uint32_t part, DType dtype, size_t first, size_t count) {
  if (count == 0) return;
  const size_t width = size_of(dtype);
  const size_t bytes = count * width;
  if (single_ || bytes < own_bytes_) {
    const bool fits =
        filling_ && (single_ || round_up(messages_.back().bytes, kAlign) + bytes <= chunk_bytes_);
    if (!fits) open_message();
    filling_ = true;
    return add_segment(part, first, count, bytes);
  }
  filling_ = false;
  const size_t pieces = (bytes + chunk_bytes_ - 1) / chunk_bytes_;
  const size_t length = round_up((count + pieces - 1) / pieces, kElements);
  for (size_t done = 0; done < count; done += length) {
    const size_t take = std::min(length, count - done);
    open_message();
    add_segment(part, first + done, take, take * width);
  }
}

Range part_of_slice(const Part& part, int slice, int ranks) {
  const size_t start = static_cast<size_t>(slice) * slice_length(part, ranks);
  const size_t first = std::min(part.total, start + part.begin);
  const size_t last = std::min(part.total, start + part.end);
  return {first, last - first};
}

size_t input_bytes(std::span<const Part> parts, int ranks) {
  size_t bytes = 0;
  for (const Part& part : parts)
    for (int slice = 0; slice < ranks; ++slice)
      bytes += part_of_slice(part, slice, ranks).count * size_of(part.dtype);
  return bytes;
}

void plan_slice(std::span<const Part> parts, int slice, int ranks, size_t chunk_bytes,
                Stream& stream) {
  stream.reset(chunk_bytes);
  for (size_t i = 0; i < parts.size(); ++i) {
    const Range range = part_of_slice(parts[i], slice, ranks);
    stream.append(static_cast<uint32_t>(i), parts[i].dtype, range.first, range.count);
  }
}

void plan_all_slices(std::span<const Part> parts, int ranks, Stream& stream) {
  stream.reset(0);
  stream.one_message();
  for (size_t i = 0; i < parts.size(); ++i)
    for (int slice = 0; slice < ranks; ++slice) {
      const Range range = part_of_slice(parts[i], slice, ranks);
      stream.append(static_cast<uint32_t>(i), parts[i].dtype, range.first, range.count);
    }
}

void plan_broadcast(std::span<const Part> parts, size_t chunk_bytes, Stream& stream) {
  stream.reset(chunk_bytes);
  for (size_t i = 0; i < parts.size(); ++i)
    stream.append(static_cast<uint32_t>(i), parts[i].dtype, parts[i].begin,
                  parts[i].end - parts[i].begin);
}

}  // namespace pushpull
