#include "core/identity.h"

#include <map>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

using Variables = std::map<std::string, std::string>;

// "rank of size", or the error; `workers`: as a configuration file says, -1 where it does not.
std::string identity(const Variables& variables, int workers = -1) {
  Registry registry;
  Settings settings;
  settings.size = workers;
  if (variables.contains("PUSHPULL_SIZE")) settings.size = std::stoi(variables.at("PUSHPULL_SIZE"));
  if (variables.contains("PUSHPULL_RANK")) settings.rank = std::stoi(variables.at("PUSHPULL_RANK"));
  const auto environment = [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  const auto found = find_identity(environment, registry, &settings);
  if (!found) return found.error().message();
  return std::to_string(found->rank) + " of " + std::to_string(found->size);
}

TEST(Identity, AJobOfKubernetesTellsItsPodsTheRankOnly) {
  EXPECT_EQ(identity({{"JOB_COMPLETION_INDEX", "2"}, {"PUSHPULL_SIZE", "4"}}), "2 of 4");
  EXPECT_EQ(identity({{"JOB_COMPLETION_INDEX", "2"}}, 4), "2 of 4");
}

TEST(Identity, AStarterMayStartAsManyAsConfigured) {
  const Variables slurm = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};
  EXPECT_EQ(identity(slurm), "1 of 2");
  EXPECT_EQ(identity(slurm, 2), "1 of 2");
  EXPECT_EQ(identity(slurm, 4),
            "the configuration says 4 workers, but Slurm (SLURM_PROCID) says 2; start as many as "
            "configured, or leave `workers` out");
}

TEST(Identity, WhatTheEnvironmentSaysWins) {
  EXPECT_EQ(identity({{"PUSHPULL_RANK", "0"}, {"PUSHPULL_SIZE", "3"}, {"RANK", "7"},
                      {"WORLD_SIZE", "8"}}),
            "0 of 3");
  EXPECT_EQ(identity({}), "0 of 1");
  EXPECT_NE(identity({{"PUSHPULL_SIZE", "2"}}).find("set PUSHPULL_RANK"), std::string::npos);
}

}  // namespace
}  // namespace pushpull
