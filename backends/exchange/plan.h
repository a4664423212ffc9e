// How the parts of a call are cut into messages. A pure function of the parts, the group's size and
// the chunk size, so that every rank arrives at the same messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/collective.h"

namespace pushpull {

// A run of elements of one tensor.
struct Segment {
  uint32_t part = 0;
  size_t first = 0;  // element of the tensor
  size_t count = 0;  // elements, at least 1
  size_t at = 0;     // its first byte in the message
};

// One or more segments that travel together. One segment goes straight out of and into its tensor;
// several are packed, each on a 16-byte boundary.
struct Message {
  size_t first_segment = 0;
  size_t segments = 0;
  size_t bytes = 0;
  bool packed() const { return segments > 1; }
};

// A sequence of messages.
class Stream {
 public:
  explicit Stream(size_t chunk_bytes = 0) { reset(chunk_bytes); }

  // Empties it. Messages will have at most about `chunk_bytes`.
  void reset(size_t chunk_bytes);
  // Appends elements [first, first + count) of part `part`: to the message that is being filled if
  // they are few, else as messages of their own, of about equal size.
  void append(uint32_t part, DType dtype, size_t first, size_t count);
  // Puts everything into one message, whatever its size, from now on.
  void one_message() { single_ = true; }

  size_t size() const { return messages_.size(); }
  const Message& operator[](size_t i) const { return messages_[i]; }
  std::span<const Segment> segments(const Message& message) const {
    return {segments_.data() + message.first_segment, message.segments};
  }
  size_t largest() const { return largest_; }  // bytes of the largest message
  size_t bytes() const { return bytes_; }      // of all messages

 private:
  void add_segment(uint32_t part, size_t first, size_t count, size_t bytes);
  void open_message();

  size_t chunk_bytes_ = 0;
  size_t own_bytes_ = 0;  // from here on a segment is worth a message of its own
  bool single_ = false;
  bool filling_ = false;
  size_t largest_ = 0;
  size_t bytes_ = 0;
  std::vector<Segment> segments_;
  std::vector<Message> messages_;
};

// Slice `slice` of `ranks` of all parts of an allreduce.
void plan_slice(std::span<const Part> parts, int slice, int ranks, size_t chunk_bytes,
                Stream& stream);
// All slices of all parts of an allreduce, slice by slice within each part, as one message.
void plan_all_slices(std::span<const Part> parts, int ranks, Stream& stream);
// All parts of a broadcast.
void plan_broadcast(std::span<const Part> parts, size_t chunk_bytes, Stream& stream);

// The elements [first, first + count) of the tensor that `part` has in slice `slice`.
struct Range {
  size_t first = 0;
  size_t count = 0;
};
Range part_of_slice(const Part& part, int slice, int ranks);
// Bytes of one rank's input over all slices.
size_t input_bytes(std::span<const Part> parts, int ranks);

}  // namespace pushpull
