#include "core/identity.h"

#include <map>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

using Variables = std::map<std::string, std::string>;

Config::Environment environment(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

// The modules of this build are there: a test links libpushpull.so beside them.
Result<Identity> find(Settings settings, Variables variables = {}) {
  Registry registry;
  return find_identity(environment(std::move(variables)), registry, &settings);
}

std::string refusal(const Result<Identity>& result, ErrorCode code = ErrorCode::kInvalidArgument) {
  EXPECT_FALSE(result);
  if (result) return {};
  EXPECT_EQ(result.error().code(), code);
  return result.error().message();
}

Settings of(const std::string& backend, int rank = -1, int size = -1) {
  Settings settings;
  settings.backend = backend;
  settings.rank = rank;
  settings.size = size;
  return settings;
}

TEST(Identity, AnUnknownBackendListsTheKnownAsUsersWriteThem) {
  EXPECT_EQ(refusal(find(of("glo"))),
            "unknown backend 'glo'; set MXNET_KVSTORE_BACKEND to one of gloo, gloo-redis, mpi, self; did you "
            "mean 'gloo'?");
  // What core takes by itself is nobody's choice.
  for (const char* internal : {"shm", "hierarchical"})
    EXPECT_TRUE(refusal(find(of(internal))).starts_with("unknown backend '")) << internal;
}

TEST(Identity, ABackendThatContradictsTheEnvironmentIsNamed) {
  EXPECT_EQ(refusal(find(of("self", 1, 2))),
            "backend self says rank 0, but PUSHPULL_RANK says 1; take another backend, or leave PUSHPULL_RANK "
            "and PUSHPULL_SIZE unset");
}

TEST(Identity, HalfAnIdentityIsNone) {
  EXPECT_NE(refusal(find(of("gloo", -1, 2))).find("set PUSHPULL_RANK"), std::string::npos);
  EXPECT_NE(refusal(find(of("gloo", 1, -1))).find("set PUSHPULL_SIZE"), std::string::npos);
  EXPECT_NE(refusal(find(of("gloo", 2, 2))).find("does not exist in a group of 2"), std::string::npos);
}

TEST(Identity, OneOfManyIsNeverAlone) {
  const std::string said = refusal(find(of("gloo", 0, 1), {{"SLURM_NTASKS", "4"}}));
  EXPECT_NE(said.find("SLURM_NTASKS=4"), std::string::npos) << said;
}

TEST(Identity, TheStarterIsAsked) {
  const auto found = find(of("gloo"), {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}});
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->size, 3);
}

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
