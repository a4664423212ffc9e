#include "core/control/coordinator.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/unit/coordinator_fixture.h"

namespace pushpull {
namespace {

using ::testing::Test;

class CoordinatorTest : public CoordinatorFixture {};

TEST_F(CoordinatorTest, WelcomesWhenTheLastHasJoined) {
  options.size = 3;
  options.run = "r1";
  make();
  EXPECT_EQ(coordinator->joined_so_far(), "0 of 3 ranks have joined; missing 0-2");
  ASSERT_TRUE(coordinator->join(member(2), now));
  ASSERT_TRUE(coordinator->join(member(0), now));
  EXPECT_EQ(coordinator->joined_so_far(), "2 of 3 ranks have joined; missing 1");
  EXPECT_FALSE(coordinator->all_joined());
  EXPECT_TRUE(sent.empty());
  ASSERT_TRUE(coordinator->join(member(1), now));
  EXPECT_TRUE(coordinator->all_joined());
  const auto welcome = only<Welcome>();
  EXPECT_EQ(welcome.run, "r1");
  ASSERT_EQ(welcome.members.size(), 3u);
  EXPECT_EQ(welcome.members[1].pid, 1001);

  for (int r = 0; r < 3; ++r) {
    EXPECT_TRUE(all<Ready>().empty());
    coordinator->receive(r, Connected{}, now);
  }
  EXPECT_EQ(all<Ready>().size(), 1u);
  EXPECT_TRUE(coordinator->all_connected());
}

TEST_F(CoordinatorTest, RunsACallWhenAllHaveAnnouncedIt) {
  start(3);
  define_all(1, "w", tensor({64, 3}));
  announce(2, 1, 1);
  announce(0, 1, 1);
  EXPECT_TRUE(sent.empty());
  announce(1, 1, 1);
  const auto name = only<Name>();
  EXPECT_EQ(name.key, "w");
  const auto batch = only<Batch>();
  EXPECT_EQ(batch.number, 1u);
  ASSERT_EQ(batch.entries.size(), 1u);
  EXPECT_EQ(batch.entries[0].id, name.id);
  EXPECT_EQ(batch.entries[0].call, 1u);
  EXPECT_EQ(batch.entries[0].begin, 0u);
  EXPECT_EQ(batch.entries[0].end, slice_length(192, 3));
  EXPECT_TRUE(batch.entries[0].last);
}

}  // namespace
}  // namespace pushpull
