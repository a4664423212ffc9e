// Values that the bench sends, and the exact sums that it expects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace pushpull::launcher {

// Small whole numbers, of which every partial sum over `ranks` ranks can be represented in `dtype`,
// so that each order of summation gives the same bits (integers of 8 bits wrap around where there
// are many ranks). Element e of rank r is (e mod 61 + 1) * (r + 1) mod m: ranks, and elements that
// lie near each other, differ. m is known to all ranks: modulus().
class Pattern {
 public:
  Pattern(DType dtype, int ranks);

  int modulus() const { return modulus_; }
  // What `rank` contributes.
  void fill(std::span<std::byte> data, int rank) const;
  // nullopt where `data` holds the sum over all ranks (or what `rank` contributed); else
  // "element 7 is 13 instead of 12".
  std::optional<std::string> check_sum(std::span<const std::byte> data) const;
  std::optional<std::string> check_value(std::span<const std::byte> data, int rank) const;

 private:
  int value(size_t element, int rank) const;
  std::vector<std::byte> tile(const std::vector<int64_t>& period) const;
  std::vector<int64_t> period_of(int rank) const;
  std::vector<int64_t> period_of_sum() const;
  std::optional<std::string> compare(std::span<const std::byte> data,
                                     const std::vector<int64_t>& period) const;

  DType dtype_;
  int ranks_;
  int modulus_;
};

}  // namespace pushpull::launcher
