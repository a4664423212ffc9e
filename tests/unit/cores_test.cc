#include "core/cores.h"

#include <sched.h>

#include <thread>
#include <vector>

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

cpu_set_t allowed_cores() {
  cpu_set_t allowed;
  EXPECT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  return allowed;
}

TEST(Cores, AThreadLeavesItsCoreAndMayReturn) {
  const cpu_set_t allowed = allowed_cores();
  if (CPU_COUNT(&allowed) == 1) {
    EXPECT_FALSE(leave_core(std::vector{this_core()}));
    return;
  }
  bool moved = false;
  for (int attempt = 0; attempt < 100 && !moved;
       ++attempt) {  // the kernel may move it back at once
    const int before = this_core();
    EXPECT_TRUE(leave_core(std::vector{before, -1}));
    moved = this_core() != before;
  }
  EXPECT_TRUE(moved);
  const cpu_set_t after = allowed_cores();
  EXPECT_TRUE(CPU_EQUAL(&allowed, &after));
}

TEST(Cores, AThreadStaysWhereEveryCoreIsTaken) {
  const cpu_set_t allowed = allowed_cores();
  std::vector<int> all;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<size_t>(core), &allowed)) all.push_back(core);
  EXPECT_FALSE(leave_core(all));
  const cpu_set_t after = allowed_cores();
  EXPECT_TRUE(CPU_EQUAL(&allowed, &after));
}

}  // namespace
}  // namespace pushpull
