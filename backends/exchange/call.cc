#include "backends/exchange/call.h"

#include <algorithm>
#include <cstring>

#include "core/reduce.h"

namespace pushpull {

void ExchangeCall::begin() {
  size_t largest = 0;
  work.open_segments.assign(parts.size(), 0);
  for (const Stream& stream : work.streams) {
    largest = std::max(largest, stream.largest());
    for (size_t q = 0; q < stream.size(); ++q)
      for (const Segment& segment : stream.segments(stream[q])) ++work.open_segments[segment.part];
  }
  work.pool.prepare(largest);
  for (size_t i = 0; i < parts.size(); ++i)
    if (work.open_segments[i] == 0) done_(i);
}

void ExchangeCall::ended(const Stream& stream, const Message& message) {
  for (const Segment& segment : stream.segments(message))
    if (--work.open_segments[segment.part] == 0) done_(segment.part);
}

const char* ExchangeCall::in(const Segment& segment) const {
  parts[segment.part].await_input();
  return static_cast<const char*>(parts[segment.part].in) + segment.first * size_of(dtype(segment));
}

char* ExchangeCall::out(const Segment& segment) const {
  return static_cast<char*>(parts[segment.part].out) + segment.first * size_of(dtype(segment));
}

void ExchangeCall::pack_inputs(const Stream& stream, const Message& message, char* to) const {
  for (const Segment& s : stream.segments(message)) {
    if (reduce.prescale != 1.0)
      scale(dtype(s), to + s.at, in(s), reduce.prescale, s.count);
    else
      std::memcpy(to + s.at, in(s), bytes(s));
  }
}

void ExchangeCall::pack_outputs(const Stream& stream, const Message& message, char* to) const {
  for (const Segment& s : stream.segments(message)) std::memcpy(to + s.at, out(s), bytes(s));
}

void ExchangeCall::unpack_outputs(const Stream& stream, const Message& message,
                                  const char* from) const {
  for (const Segment& s : stream.segments(message)) std::memcpy(out(s), from + s.at, bytes(s));
}

const char* ExchangeCall::own_input(const Stream& stream, const Message& message, char*& buffer) {
  if (!message.packed() && reduce.prescale == 1.0) return in(stream.segments(message)[0]);
  buffer = work.pool.take();
  pack_inputs(stream, message, buffer);
  return buffer;
}

const char* ExchangeCall::own_output(const Stream& stream, const Message& message, char*& buffer) {
  if (!message.packed()) return out(stream.segments(message)[0]);
  buffer = work.pool.take();
  pack_outputs(stream, message, buffer);
  return buffer;
}

char* ExchangeCall::output_place(const Stream& stream, const Message& message, char*& buffer) {
  if (!message.packed()) return out(stream.segments(message)[0]);
  buffer = work.pool.take();
  return buffer;
}

void ExchangeCall::sum(const Stream& stream, const Message& message,
                       std::span<const char* const> others) {
  char* scaled = nullptr;
  if (reduce.prescale != 1.0) {
    scaled = work.pool.take();
    pack_inputs(stream, message, scaled);
  }
  for (const Segment& s : stream.segments(message)) {
    work.inputs.clear();
    for (const char* other : others) work.inputs.push_back(other + s.at);
    work.inputs.push_back(scaled != nullptr ? scaled + s.at : in(s));
    combine(dtype(s), out(s), work.inputs, s.count);
    scale_output(s);
  }
  work.pool.give_back(scaled);
}

void ExchangeCall::add_own(const Stream& stream, const Message& message, char* partial) {
  char* scaled = nullptr;
  if (reduce.prescale != 1.0) {
    scaled = work.pool.take();
    pack_inputs(stream, message, scaled);
  }
  for (const Segment& s : stream.segments(message))
    add(dtype(s), partial + s.at, partial + s.at, scaled != nullptr ? scaled + s.at : in(s),
        s.count);
  work.pool.give_back(scaled);
}

void ExchangeCall::combine(DType dtype, void* out, std::span<const void* const> inputs,
                           size_t count) const {
  if (rounding == Rounding::kOnce || inputs.size() < 3) return add_all(dtype, out, inputs, count);
  // The last input may be the output's own memory; the partial sums must not run over it.
  char* partial = work.pool.take();
  add(dtype, partial, inputs[0], inputs[1], count);
  for (size_t i = 2; i + 1 < inputs.size(); ++i) add(dtype, partial, partial, inputs[i], count);
  add(dtype, out, partial, inputs.back(), count);
  work.pool.give_back(partial);
}

void ExchangeCall::scale_output(const Segment& s) const {
  if (reduce.postscale != 1.0) scale(dtype(s), out(s), out(s), reduce.postscale, s.count);
}

}  // namespace pushpull
