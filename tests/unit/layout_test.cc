#include "core/layout.h"

#include <gtest/gtest.h>

#include "core/group.h"

namespace pushpull {
namespace {

using Ranks = std::vector<int>;

TEST(Layout, CountsHostsByTheirLowestRank) {
  const Layout layout(Ranks{7, 3, 7, 9, 3, 7});
  EXPECT_EQ(layout.ranks(), 6);
  EXPECT_EQ(layout.hosts(), 3);
  EXPECT_EQ(layout.ranks_of(0), (Ranks{0, 2, 5}));
  EXPECT_EQ(layout.ranks_of(1), (Ranks{1, 4}));
  EXPECT_EQ(layout.ranks_of(2), (Ranks{3}));
  EXPECT_EQ(layout.host_of(4), 1);
  EXPECT_EQ(layout.local_rank(5), 2);
}

TEST(Layout, TheSmallestHostSaysHowManyCarry) {
  const Layout uneven(Ranks{0, 0, 0, 1, 1});
  EXPECT_EQ(uneven.carriers(), 2);
  EXPECT_EQ(uneven.slices(), 4);
  EXPECT_TRUE(uneven.carries(1));
  EXPECT_FALSE(uneven.carries(2));
  EXPECT_EQ(uneven.counterparts(1), (Ranks{1, 4}));
}

TEST(Layout, ItsEnds) {
  const Layout apart = Layout::apart(3);
  EXPECT_EQ(apart.hosts(), 3);
  EXPECT_EQ(apart.slices(), 3);
  EXPECT_EQ(apart.counterparts(0), (Ranks{0, 1, 2}));
  const Layout together(Ranks{4, 4, 4});
  EXPECT_EQ(together.hosts(), 1);
  EXPECT_EQ(together.slices(), 3);
  EXPECT_EQ(Layout().slices(), 0);
}

TEST(CandidateHosts, NeedTheSameKernelAndNetwork) {
  std::vector<Member> members(6);
  const auto set = [&](size_t r, const char* boot, uint64_t network) {
    members[r].boot_id = boot;
    members[r].network_namespace = network;
  };
  set(0, "a", 1);
  set(1, "b", 1);
  set(2, "a", 2);
  set(3, "a", 1);
  set(4, "", 1);
  set(5, "", 1);
  EXPECT_EQ(candidate_hosts(members), (Ranks{0, 1, 2, 0, 4, 5}));
}

}  // namespace
}  // namespace pushpull
