#include "backends/exchange/plan.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace pushpull {
namespace {

Part whole(DType dtype, size_t count, int ranks) {
  Part part;
  part.dtype = dtype;
  part.total = count;
  part.end = slice_length(count, ranks);
  return part;
}

TEST(Plan, LargePartsAreCutIntoMessagesOfTheirOwn) {
  const std::vector<Part> parts{whole(DType::kFloat32, 100000, 2)};
  Stream stream;
  plan_slice(parts, 1, 2, 65536, stream);
  ASSERT_EQ(stream.size(), 4u);
  size_t next = slice_length(100000, 2);
  for (size_t q = 0; q < stream.size(); ++q) {
    ASSERT_FALSE(stream[q].packed());
    const Segment& segment = stream.segments(stream[q])[0];
    EXPECT_EQ(segment.first, next);
    EXPECT_EQ(segment.at, 0u);
    EXPECT_EQ(stream[q].bytes, segment.count * 4);
    EXPECT_LE(stream[q].bytes, 65536u);
    next += segment.count;
  }
  EXPECT_EQ(next, 100000u);
}

TEST(Plan, SmallPartsShareAMessage) {
  std::vector<Part> parts;
  for (size_t i = 1; i <= 20; ++i) parts.push_back(whole(DType::kInt8, 100 * i, 1));
  parts.push_back(whole(DType::kFloat64, 50000, 1));
  parts.push_back(whole(DType::kFloat16, 3, 1));
  Stream stream;
  plan_slice(parts, 0, 1, 1 << 20, stream);
  ASSERT_EQ(stream.size(), 3u);
  EXPECT_EQ(stream.segments(stream[0]).size(), 20u);
  EXPECT_TRUE(stream[0].packed());
  for (const Segment& segment : stream.segments(stream[0])) EXPECT_EQ(segment.at % 16, 0u);
  EXPECT_FALSE(stream[1].packed());
  EXPECT_EQ(stream[2].bytes, 6u);
}

TEST(Plan, ShortTensorsHaveEmptySlices) {
  const std::vector<Part> parts{whole(DType::kFloat32, 17, 4)};
  Stream stream;
  for (const auto& [slice, count] : {std::pair<int, size_t>{0, 16}, {1, 1}, {2, 0}, {3, 0}}) {
    plan_slice(parts, slice, 4, 4096, stream);
    EXPECT_EQ(stream.bytes(), count * 4) << slice;
    EXPECT_EQ(stream.size(), count == 0 ? 0u : 1u);
  }
}

// However the chunk size is: every element of every part exactly once, in order, within the message.
TEST(Plan, CoversEveryElementOnce) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int ranks = 1 + static_cast<int>(random() % 7);
    const size_t chunk = 200 + random() % 50000;
    std::vector<Part> parts;
    std::vector<std::vector<int>> seen;
    for (size_t i = random() % 12; i-- > 0;) {
      Part part = whole(kAllDTypes[random() % std::size(kAllDTypes)], random() % 30000, ranks);
      part.begin = part.end == 0 ? 0 : random() % (part.end + 1);
      part.end = part.begin + (part.end == part.begin ? 0 : random() % (part.end - part.begin + 1));
      parts.push_back(part);
      seen.emplace_back(part.total, 0);
    }
    for (int slice = 0; slice < ranks; ++slice) {
      Stream stream;
      plan_slice(parts, slice, ranks, chunk, stream);
      for (size_t q = 0; q < stream.size(); ++q) {
        size_t used = 0;
        for (const Segment& s : stream.segments(stream[q])) {
          EXPECT_GE(s.at, used);
          used = s.at + s.count * size_of(parts[s.part].dtype);
          for (size_t e = 0; e < s.count; ++e) ++seen[s.part][s.first + e];
        }
        EXPECT_EQ(stream[q].bytes, used);
        EXPECT_LE(stream[q].bytes, std::max<size_t>(chunk, 256) + 16 * 8);
        EXPECT_LE(stream[q].bytes, stream.largest());
      }
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      const size_t length = slice_length(parts[i].total, ranks);
      for (size_t e = 0; e < parts[i].total; ++e) {
        const bool inside = e % length >= parts[i].begin && e % length < parts[i].end;
        ASSERT_EQ(seen[i][e], inside ? 1 : 0) << "part " << i << " element " << e;
      }
    }
  }
}

TEST(Plan, EverythingInOneMessage) {
  const std::vector<Part> parts{whole(DType::kFloat32, 100, 3), whole(DType::kInt8, 5, 3)};
  Stream stream;
  plan_all_slices(parts, 3, stream);
  ASSERT_EQ(stream.size(), 1u);
  EXPECT_EQ(stream.segments(stream[0]).size(), 4u);  // 48 + 48 + 4 elements, and 5
  EXPECT_EQ(input_bytes(parts, 3), 405u);
}

}  // namespace
}  // namespace pushpull
