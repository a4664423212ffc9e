// Who shares memory: what the coordinator makes of the ranks' reports.
#include <gtest/gtest.h>

#include "tests/unit/coordinator_fixture.h"

namespace pushpull {
namespace {

class Placing : public CoordinatorFixture {
 protected:
  // Rank r on machine machines[r].
  void place(const std::vector<int>& machines) {
    options.size = static_cast<int>(machines.size());
    options.run = "run";
    make();
    for (int r = 0; r < options.size; ++r) {
      Member m = member(r);
      m.network_namespace = static_cast<uint64_t>(1 + machines[static_cast<size_t>(r)]);
      ASSERT_TRUE(coordinator->join(m, now));
    }
    sent.clear();
  }
  void report(int rank, bool shared) {
    coordinator->receive(rank, LocalMemory{.shared = shared}, now);
  }
};

TEST_F(Placing, HostsArePublishedWhenAllHaveReported) {
  place({0, 1, 0, 1, 2});
  for (int r = 0; r < 4; ++r) report(r, true);
  EXPECT_TRUE(sent.empty());
  report(4, true);
  EXPECT_EQ(only<Hosts>().hosts, (std::vector<int32_t>{0, 1, 0, 1, 4}));
}

TEST_F(Placing, OneThatCannotSetsItsHostApartAtOnce) {
  place({0, 1, 0, 1});
  report(0, true);
  report(1, true);
  report(3, true);
  EXPECT_TRUE(sent.empty());
  report(2, false);
  EXPECT_EQ(only<Hosts>().hosts, (std::vector<int32_t>{0, 1, 2, 1}));
}

TEST_F(Placing, TheOthersOfThatHostNeedNotBeHeard) {
  place({0, 0, 0});
  report(1, false);
  EXPECT_EQ(only<Hosts>().hosts, (std::vector<int32_t>{0, 1, 2}));
  report(0, true);
  report(0, true);
  EXPECT_EQ(all<Hosts>().size(), 1u);
}

TEST_F(Placing, ReportingTwiceCountsOnce) {
  place({0, 0});
  report(0, true);
  report(0, true);
  EXPECT_TRUE(sent.empty());
  EXPECT_FALSE(coordinator->aborted());
}

// 2 + 1 ranks: two slices, one for each host's carrier.
TEST_F(Placing, SumsAreCutIntoOneSlicePerCarrier) {
  options.fusion_bytes = size_t{1} << 30;
  place({0, 0, 1});
  for (int r = 0; r < 3; ++r) report(r, true);
  for (int r = 0; r < 3; ++r) coordinator->receive(r, Connected{}, now);
  define_all(1, "w", tensor({3000}));
  sent.clear();
  announce_all(1, 1);
  EXPECT_EQ(only<Batch>().entries[0].end, slice_length(3000, 2));
}

}  // namespace
}  // namespace pushpull
