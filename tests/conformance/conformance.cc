#include "tests/conformance/conformance.h"

#include <fmt/format.h>

namespace pushpull::testing {

std::vector<Bytes> Conformance::inputs(DType dtype, size_t count, uint32_t seed) const {
  std::vector<Bytes> all;
  for (int rank = 0; rank < ranks(); ++rank) all.push_back(make_input(dtype, count, rank, seed));
  return all;
}

Bytes Conformance::expected_sum(DType dtype, size_t count, const std::vector<Bytes>& in,
                                const Reduce& reduce) const {
  return groups().expected_sum(dtype, count, in, reduce);
}

Placed::Placed(const Bytes& input, bool in_place)
    : in_place_(in_place), in_(input), out_(in_place ? 0 : input.size(), 0xee) {}

Part Placed::sum_part(DType dtype, size_t count, int ranks) {
  Part part = broadcast_part(dtype, count);
  part.end = slice_length(count, ranks);
  return part;
}

Part Placed::broadcast_part(DType dtype, size_t count) {
  return {in_.data(), in_place_ ? in_.data() : out_.data(), dtype, count, 0, count};
}

std::string difference(DType dtype, const Bytes& got, const Bytes& expected) {
  if (got == expected) return {};
  if (got.size() != expected.size()) return "another length";
  const size_t width = size_of(dtype);
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    const size_t element = i / width;
    std::string text =
        fmt::format("{} of {}: element {} is", to_string(dtype), got.size() / width, element);
    for (size_t b = 0; b < width; ++b) text += fmt::format(" {:02x}", got[element * width + b]);
    text += " instead of";
    for (size_t b = 0; b < width; ++b)
      text += fmt::format(" {:02x}", expected[element * width + b]);
    return text;
  }
  return {};
}

}  // namespace pushpull::testing
