#include "core/identity.h"

#include <map>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Config::Environment environment(Variables variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

// The modules of this build are there: a test links libpushpull.so beside them.
Result<Identity> identity(Settings settings, Variables variables = {}) {
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
  EXPECT_EQ(refusal(identity(of("glo"))),
            "unknown backend 'glo'; set MXNET_KVSTORE_BACKEND to one of gloo, gloo-redis, mpi, self; did you "
            "mean 'gloo'?");
  // What core takes by itself is nobody's choice.
  for (const char* internal : {"shm", "hierarchical"})
    EXPECT_TRUE(refusal(identity(of(internal))).starts_with("unknown backend '")) << internal;
}

TEST(Identity, ABackendThatContradictsTheEnvironmentIsNamed) {
  EXPECT_EQ(refusal(identity(of("self", 1, 2))),
            "backend self says rank 0, but PUSHPULL_RANK says 1; take another backend, or leave PUSHPULL_RANK "
            "and PUSHPULL_SIZE unset");
}

TEST(Identity, HalfAnIdentityIsNone) {
  EXPECT_NE(refusal(identity(of("gloo", -1, 2))).find("set PUSHPULL_RANK"), std::string::npos);
  EXPECT_NE(refusal(identity(of("gloo", 1, -1))).find("set PUSHPULL_SIZE"), std::string::npos);
  EXPECT_NE(refusal(identity(of("gloo", 2, 2))).find("does not exist in a group of 2"), std::string::npos);
}

TEST(Identity, OneOfManyIsNeverAlone) {
  const std::string said = refusal(identity(of("gloo", 0, 1), {{"SLURM_NTASKS", "4"}}));
  EXPECT_NE(said.find("SLURM_NTASKS=4"), std::string::npos) << said;
}

TEST(Identity, TheStarterIsAsked) {
  const auto found = identity(of("gloo"), {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "3"}});
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->size, 3);
}

}  // namespace
}  // namespace pushpull
