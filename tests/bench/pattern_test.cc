// What the bench sends can be summed exactly, and what is wrong is found.
#include "launcher/bench/pattern.h"

#include <cstring>

#include <gtest/gtest.h>

#include "core/reduce.h"
#include "tests/support/reference.h"

namespace pushpull::launcher {
namespace {

using Bytes = std::vector<std::byte>;

// Summed as a ring does it: pairwise, rounded after each addition.
Bytes sum_of(const Pattern& pattern, DType dtype, size_t count, int ranks) {
  Bytes sum(count * size_of(dtype)), next(sum.size());
  pattern.fill(sum, 0);
  for (int rank = 1; rank < ranks; ++rank) {
    pattern.fill(next, rank);
    add(dtype, sum.data(), sum.data(), next.data(), count);
  }
  return sum;
}

class Patterns : public ::testing::TestWithParam<DType> {};

TEST_P(Patterns, SumsAreExact) {
  for (const int ranks : {1, 2, 3, 8, 64, 200}) {
    const Pattern pattern(GetParam(), ranks);
    const Bytes sum = sum_of(pattern, GetParam(), 10'000, ranks);
    EXPECT_EQ(pattern.check_sum(sum), std::nullopt) << ranks;
  }
}

TEST_P(Patterns, AnyChangedElementIsFound) {
  const size_t size = size_of(GetParam());
  const Pattern pattern(GetParam(), 2);
  const Bytes sum = sum_of(pattern, GetParam(), 10'000, 2);
  for (const size_t element : {size_t{0}, size_t{61}, size_t{4095}, size_t{9999}}) {
    Bytes wrong = sum;
    wrong[element * size + size - 1] ^= std::byte{1};
    const auto said = pattern.check_sum(wrong);
    ASSERT_TRUE(said);
    EXPECT_EQ(said->rfind("element " + std::to_string(element) + " is ", 0), 0u) << *said;
  }
}

TEST_P(Patterns, WhatRanksMixUpIsFound) {
  const DType dtype = GetParam();
  const Pattern pattern(dtype, 3);
  const size_t count = 1000, size = size_of(dtype);
  Bytes one(count * size), other(count * size), sum(count * size);
  pattern.fill(one, 0);
  pattern.fill(other, 1);
  EXPECT_EQ(pattern.check_value(one, 0), std::nullopt);
  EXPECT_TRUE(pattern.check_value(other, 0));
  add(dtype, sum.data(), one.data(), other.data(), count);
  EXPECT_TRUE(pattern.check_sum(sum)) << "a rank is missing";
  add(dtype, sum.data(), sum.data(), other.data(), count);
  EXPECT_TRUE(pattern.check_sum(sum)) << "a rank counts twice instead of another";
  sum = sum_of(pattern, dtype, count, 3);
  std::memmove(sum.data(), sum.data() + size, (count - 1) * size);
  EXPECT_TRUE(pattern.check_sum(sum)) << "moved by an element";
}

INSTANTIATE_TEST_SUITE_P(All, Patterns, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST(Pattern, SaysWhatIsWrong) {
  const Pattern pattern(DType::kFloat16, 2);
  Bytes sum = sum_of(pattern, DType::kFloat16, 100, 2);
  const uint16_t bits = pushpull::testing::float_to_half(-0.5f);
  std::memcpy(sum.data() + 2 * 7, &bits, 2);
  EXPECT_EQ(pattern.check_sum(sum), "element 7 is -0.5 instead of 24");  // 8 + 16
}

}  // namespace
}  // namespace pushpull::launcher
