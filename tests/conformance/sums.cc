#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "tests/conformance/conformance.h"

namespace pushpull::testing {
namespace {

// One allreduce of one tensor on every rank, compared bit for bit.
void check_sum(Collective& c, DType dtype, size_t count, const std::vector<Bytes>& in,
               const Bytes& expected, bool in_place, const Reduce& reduce = {}) {
  const Bytes& own = in[static_cast<size_t>(c.rank())];
  Placed placed(own, in_place);
  const Part part = placed.sum_part(dtype, count, c.size());
  DoneOnce done(1);
  const auto ok = c.allreduce({&part, 1}, reduce, done.callback());
  ASSERT_TRUE(ok) << ok.error().message();
  EXPECT_TRUE(done.all());
  EXPECT_EQ(difference(dtype, placed.result(), expected), "");
  EXPECT_TRUE(placed.input_untouched(own));
}

TEST_P(Conformance, SumsOfEveryTypeAndFewElements) {
  constexpr size_t kCounts[] = {0, 1, 2, 3, 15, 16, 17, 1023, 5000};
  struct Tensor {
    DType dtype;
    size_t count;
    std::vector<Bytes> in;
    Bytes expected;
  };
  std::vector<Tensor> tensors;
  for (DType dtype : kAllDTypes)
    for (size_t count : kCounts) {
      Tensor t{dtype, count, inputs(dtype, count, 1), {}};
      t.expected = expected_sum(dtype, count, t.in);
      tensors.push_back(std::move(t));
    }
  run([&](auto& c) {
    for (const Tensor& t : tensors)
      for (bool in_place : {true, false})
        check_sum(*c, t.dtype, t.count, t.in, t.expected, in_place);
  });
}

TEST_P(Conformance, SumsOfEveryTypeAndManyElements) {
  for (DType dtype : kAllDTypes) {
    const size_t count = kMany + static_cast<size_t>(dtype) * 7;
    const auto in = inputs(dtype, count, 2);
    const Bytes expected = expected_sum(dtype, count, in);
    run([&](auto& c) { check_sum(*c, dtype, count, in, expected, count % 2 == 0); });
  }
}

TEST_P(Conformance, SumsOfHugeTensors) {
  if (ranks() != 2 && ranks() != 4) return;  // the suite's definition asks for these sizes
  for (DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const size_t count = kHuge;
    const auto in = inputs(dtype, count, 3);
    const Bytes expected = expected_sum(dtype, count, in);
    run([&](auto& c) { check_sum(*c, dtype, count, in, expected, dtype == DType::kFloat32); });
  }
}

TEST_P(Conformance, ScalesRoundToTheType) {
  const Reduce reduces[] = {{0.25, 1.0}, {1.0, 1.0 / 3}, {1.0 / 7, 5.0}, {0.0, 1.0}, {-2.0, 0.5}};
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16})
    for (size_t count : {size_t{77}, size_t{40000}}) {
      const auto in = inputs(dtype, count, 4);
      std::vector<Bytes> expected;
      for (const Reduce& reduce : reduces)
        expected.push_back(expected_sum(dtype, count, in, reduce));
      run([&](auto& c) {
        for (size_t i = 0; i < std::size(reduces); ++i)
          check_sum(*c, dtype, count, in, expected[i], i % 2 == 0, reduces[i]);
      });
    }
}

TEST_P(Conformance, HalfPrecisionSumsThatWouldOverflowDoNotWithPrescale) {
  if (ranks() < 2) return;  // one rank's sum does not overflow
  const size_t count = 100;
  Bytes input(count * 2);
  for (size_t i = 0; i < count; ++i) {
    const uint16_t bits = float_to_half(61440.0f);
    std::memcpy(input.data() + 2 * i, &bits, 2);
  }
  run([&](auto& c) {
    Placed plain(input, true), scaled(input, true);
    const Part plain_part = plain.sum_part(DType::kFloat16, count, c->size());
    const Part scaled_part = scaled.sum_part(DType::kFloat16, count, c->size());
    ASSERT_TRUE(c->allreduce({&plain_part, 1}, {}, {}));
    ASSERT_TRUE(c->allreduce({&scaled_part, 1}, {1.0 / 16, 1.0}, {}));
    uint16_t first = 0;
    std::memcpy(&first, plain.result().data(), 2);
    EXPECT_EQ(first, 0x7c00) << "infinity";
    std::memcpy(&first, scaled.result().data(), 2);
    EXPECT_EQ(half_to_float(first),
              half_to_float(float_to_half(3840.0f * static_cast<float>(c->size()))));
  });
}

// Several tensors of one call.
class List {
 public:
  struct Tensor {
    DType dtype;
    size_t count;
    std::vector<Bytes> in;
    Bytes expected;
  };
  std::vector<Tensor> tensors;

  void check(Collective& c) const {
    std::vector<Placed> placed;
    std::vector<Part> parts;
    for (size_t i = 0; i < tensors.size(); ++i)
      placed.emplace_back(tensors[i].in[static_cast<size_t>(c.rank())], i % 3 != 0);
    for (size_t i = 0; i < tensors.size(); ++i)
      parts.push_back(placed[i].sum_part(tensors[i].dtype, tensors[i].count, c.size()));
    DoneOnce done(parts.size());
    const auto ok = c.allreduce(parts, {}, done.callback());
    ASSERT_TRUE(ok) << ok.error().message();
    EXPECT_TRUE(done.all());
    for (size_t i = 0; i < tensors.size(); ++i)
      EXPECT_EQ(difference(tensors[i].dtype, placed[i].result(), tensors[i].expected), "")
          << "tensor " << i;
  }
};

TEST_P(Conformance, ListsMixTypesAndSizes) {
  std::mt19937 random(5);
  for (const size_t largest : {size_t{40}, size_t{3000}, size_t{300000}}) {
    List list;
    for (uint32_t i = 0; i < 40; ++i) {
      const DType dtype = kAllDTypes[random() % std::size(kAllDTypes)];
      const size_t count = random() % (random() % 2 == 0 ? 40 : largest);
      List::Tensor t{dtype, count, inputs(dtype, count, 100 + i), {}};
      t.expected = expected_sum(dtype, count, t.in);
      list.tensors.push_back(std::move(t));
    }
    run([&](auto& c) { list.check(*c); });
  }
  run([](auto& c) { EXPECT_TRUE(c->allreduce({}, {}, {})); });
}

// A part that is done belongs to the caller again, while others are still under way.
TEST_P(Conformance, APartThatIsDoneMayBeOverwritten) {
  constexpr size_t kParts = 12;
  std::vector<size_t> counts;
  std::vector<std::vector<Bytes>> in;
  std::vector<Bytes> expected;
  for (uint32_t i = 0; i < kParts; ++i) {
    counts.push_back(i % 4 == 3 ? 200 : 150000 + i);
    in.push_back(inputs(DType::kFloat32, counts[i], 300 + i));
    expected.push_back(expected_sum(DType::kFloat32, counts[i], in[i]));
  }
  run([&](auto& c) {
    const auto rank = static_cast<size_t>(c->rank());
    std::vector<Bytes> memory, results(kParts);
    std::vector<Part> parts;
    for (size_t i = 0; i < kParts; ++i) memory.push_back(in[i][rank]);
    for (size_t i = 0; i < kParts; ++i)
      parts.push_back({memory[i].data(), memory[i].data(), DType::kFloat32, counts[i], 0,
                       slice_length(counts[i], c->size())});
    const auto take = [&](size_t i) {
      results[i] = memory[i];
      std::fill(memory[i].begin(), memory[i].end(), 0xa5);
    };
    ASSERT_TRUE(c->allreduce(parts, {}, take));
    for (size_t i = 0; i < kParts; ++i) {
      EXPECT_EQ(difference(DType::kFloat32, results[i], expected[i]), "") << "part " << i;
      EXPECT_EQ(std::count(memory[i].begin(), memory[i].end(), 0xa5),
                static_cast<ptrdiff_t>(memory[i].size()));
    }
    // The same for a broadcast.
    for (size_t i = 0; i < kParts; ++i) {
      std::copy(in[i][rank].begin(), in[i][rank].end(), memory[i].begin());
      parts[i].end = counts[i];
    }
    ASSERT_TRUE(c->broadcast(parts, 0, take));
    for (size_t i = 0; i < kParts; ++i) EXPECT_EQ(results[i], in[i][0]) << "part " << i;
  });
}

TEST_P(Conformance, PiecesGiveTheBitsOfTheWhole) {
  std::mt19937 random(6);
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt8}) {
    const size_t count = 200001;
    const auto in = inputs(dtype, count, 7);
    const Bytes expected = expected_sum(dtype, count, in);
    const size_t length = slice_length(count, ranks());
    std::vector<size_t> cuts{0, length};
    for (int i = 0; i < 6; ++i) cuts.push_back(random() % length);
    std::sort(cuts.begin(), cuts.end());
    run([&](auto& c) {
      Placed placed(in[static_cast<size_t>(c->rank())], dtype != DType::kInt8);
      Part part = placed.sum_part(dtype, count, c->size());
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        part.begin = cuts[i];
        part.end = cuts[i + 1];
        DoneOnce done(1);
        ASSERT_TRUE(c->allreduce({&part, 1}, {}, done.callback()));
        EXPECT_TRUE(done.all());
      }
      EXPECT_EQ(difference(dtype, placed.result(), expected), "");
    });
  }
}

TEST_P(Conformance, SumsOfSpecialValues) {
  // The order of additions decides: 1e8 + 1 loses the 1, unless -1e8 came before.
  const float values[] = {1e8f, 1.0f, -1e8f, 1.0f, INFINITY, 0x1p-140f, -0.0f, 3.4e38f};
  const size_t count = 1000;
  std::vector<Bytes> in;
  for (int rank = 0; rank < ranks(); ++rank) {
    Bytes bytes(count * 4);
    for (size_t i = 0; i < count; ++i)
      std::memcpy(bytes.data() + 4 * i, &values[(i + static_cast<size_t>(rank)) % 8], 4);
    in.push_back(bytes);
  }
  const Bytes expected = expected_sum(DType::kFloat32, count, in);
  run([&](auto& c) { check_sum(*c, DType::kFloat32, count, in, expected, true); });
}

TEST_P(Conformance, LateRanksAreWaitedFor) {
  const auto in = inputs(DType::kFloat32, kMany, 8);
  const Bytes expected = expected_sum(DType::kFloat32, kMany, in);
  run([&](auto& c) {
    if (c->rank() % 2 == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    check_sum(*c, DType::kFloat32, kMany, in, expected, true);
  });
}

}  // namespace
}  // namespace pushpull::testing
