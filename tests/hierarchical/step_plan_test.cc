#include "backends/hierarchical/step_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace pushpull {
namespace {

StepOptions options(int hosts, int carriers, int carrier, size_t step_bytes) {
  StepOptions o;
  o.hosts = hosts;
  o.carriers = carriers;
  o.carrier = carrier;
  o.default_slices = hosts * carriers;
  o.step_bytes = step_bytes;
  return o;
}

// How often each element of tensor 0 is in these parts.
void count(std::span<const Part> parts, const float* base, std::vector<int>* times) {
  for (const Part& part : parts) {
    const auto start = static_cast<size_t>(static_cast<const float*>(part.out) - base);
    const size_t length = part.slice;
    for (size_t s = 0; s * length < part.total; ++s)
      for (size_t i = part.begin; i < part.end; ++i)
        if (s * length + i < part.total) ++(*times)[start + s * length + i];
  }
}

// Over all steps, every element is summed once, spread once, and exchanged by one carrier.
TEST(StepPlan, EveryElementGoesThroughEachStageOnce) {
  std::mt19937 random(5);
  for (const int hosts : {2, 3})
    for (const int carriers : {1, 2, 3})
      for (const size_t total : {size_t{1}, size_t{15}, size_t{100}, size_t{5000}, size_t{200001}})
        for (const size_t step_bytes : {size_t{1000}, size_t{100000}, size_t{1} << 24}) {
          const size_t length = slice_length(total, hosts * carriers);
          std::vector<float> memory(total);
          Part part{memory.data(), memory.data(), DType::kFloat32, total, 0, 0, length};
          part.begin = random() % length;
          part.end = part.begin + 1 + random() % (length - part.begin);
          std::vector<int> wanted(total, 0), local(total), spread(total), across(total);
          count({&part, 1}, memory.data(), &wanted);
          for (int carrier = 0; carrier < carriers; ++carrier) {
            StepPlan plan(options(hosts, carriers, carrier, step_bytes));
            plan.for_sum({&part, 1});
            size_t ends = 0;
            for (size_t q = 0; q < plan.size(); ++q) {
              count(plan[q].across, memory.data(), &across);
              ends += plan[q].ends.size();
              if (carrier != 0) continue;
              count(plan[q].local, memory.data(), &local);
              for (const auto& of_carrier : plan[q].spread)
                count(of_carrier, memory.data(), &spread);
            }
            EXPECT_EQ(ends, 1u);
          }
          EXPECT_EQ(local, wanted);
          EXPECT_EQ(spread, wanted);
          EXPECT_EQ(across, wanted);
        }
}

// What a carrier spreads is what it exchanged, with slices where the whole tensor has them.
TEST(StepPlan, CarriersSpreadWhatTheyExchanged) {
  constexpr size_t kTotal = 30000;
  std::vector<float> memory(kTotal);
  const Part part{memory.data(),          memory.data(), DType::kFloat32, kTotal, 0,
                  slice_length(kTotal, 6)};
  for (int carrier = 0; carrier < 2; ++carrier) {
    StepPlan plan(options(3, 2, carrier, 1u << 24));
    plan.for_sum({&part, 1});
    std::vector<int> across(kTotal), spread(kTotal);
    for (size_t q = 0; q < plan.size(); ++q) {
      count(plan[q].across, memory.data(), &across);
      count(plan[q].spread[static_cast<size_t>(carrier)], memory.data(), &spread);
      for (const Part& row : plan[q].across) EXPECT_EQ(row.slice, slice_length(kTotal, 6));
    }
    EXPECT_EQ(across, spread);
  }
}

TEST(StepPlan, SmallCallsHaveOneStepAndOneCarrier) {
  std::vector<float> memory(3000);
  std::vector<Part> parts;
  for (size_t i = 0; i < 3; ++i)
    parts.push_back({memory.data() + 1000 * i, memory.data() + 1000 * i, DType::kFloat32, 1000, 0,
                     slice_length(1000, 4)});
  StepPlan plan(options(2, 2, 1, 512u << 10));
  plan.for_sum(parts);
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan.carriers(), 1);
  EXPECT_TRUE(plan[0].across.empty());
  EXPECT_EQ(plan[0].ends, (std::vector<size_t>{0, 1, 2}));
}

TEST(StepPlan, BroadcastsGoInStrips) {
  constexpr size_t kTotal = 100000;
  std::vector<float> memory(kTotal), source(kTotal);
  const Part part{source.data(), memory.data(), DType::kFloat32, kTotal, 0, kTotal};
  std::vector<int> times(kTotal);
  for (int carrier = 0; carrier < 3; ++carrier) {
    StepPlan plan(options(2, 3, carrier, 64u << 10));
    plan.for_broadcast({&part, 1});
    for (size_t q = 0; q < plan.size(); ++q)
      for (const Part& strip : plan[q].across) {
        EXPECT_EQ(strip.in, memory.data());
        for (size_t i = strip.begin; i < strip.end; ++i) ++times[i];
      }
  }
  EXPECT_EQ(std::count(times.begin(), times.end(), 1), static_cast<ptrdiff_t>(kTotal));
}

}  // namespace
}  // namespace pushpull
