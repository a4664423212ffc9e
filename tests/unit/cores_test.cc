#include "core/cores.h"

#include <thread>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(Cores, RanksOfThisMachineCount) {
  const size_t cores = std::thread::hardware_concurrency();
  Group group;
  for (size_t r = 0; r < 2 * cores; ++r) {
    Member member;
    member.boot_id = r < cores ? "this one" : "another";
    group.members.push_back(member);
  }
  EXPECT_FALSE(ranks_outnumber_cores(group));
  group.members.back().boot_id = "this one";
  EXPECT_TRUE(ranks_outnumber_cores(group));
  group.rank = static_cast<int>(cores);  // on the other machine
  EXPECT_FALSE(ranks_outnumber_cores(group));
}

}  // namespace
}  // namespace pushpull
