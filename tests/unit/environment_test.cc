#include "core/environment.h"

#include <cstdlib>
#include <map>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

using Variables = std::map<std::string, std::string>;

Config::Environment environment(Variables variables) {
  return [variables](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

struct Started {
  const char* by;
  Variables variables;
  std::optional<int> rank;
  std::optional<int> size;
  std::optional<int> local_rank;
  const char* source;
};
class DetectStarter : public testing::TestWithParam<Started> {};

TEST_P(DetectStarter, FindsRankAndSize) {
  const auto info = detect_starter(environment(GetParam().variables));
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->rank, GetParam().rank);
  EXPECT_EQ(info->size, GetParam().size);
  EXPECT_EQ(info->local_rank, GetParam().local_rank);
  EXPECT_EQ(info->source, GetParam().source);
}

INSTANTIATE_TEST_SUITE_P(
    All, DetectStarter,
    testing::Values(
        Started{"Nobody", {}, {}, {}, {}, ""},
        Started{"Hand",
                {{"PUSHPULL_RANK", "1"}, {"PUSHPULL_SIZE", "4"}},
                1,
                4,
                {},
                "environment PUSHPULL_RANK"},
        Started{"AnyRank",
                {{"PUSHPULL_RANK", "auto"}, {"PUSHPULL_SIZE", "4"}},
                {},
                4,
                {},
                "environment PUSHPULL_RANK"},
        Started{"OpenMpi",
                {{"OMPI_COMM_WORLD_RANK", "3"},
                 {"OMPI_COMM_WORLD_SIZE", "4"},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                 {"PMIX_RANK", "3"}},
                3,
                4,
                1,
                "Open MPI (OMPI_COMM_WORLD_RANK)"},
        Started{"Pmi",
                {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}},
                0,
                2,
                0,
                "PMI (PMI_RANK)"},
        Started{"Slurm",
                {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}},
                2,
                8,
                0,
                "Slurm (SLURM_PROCID)"},
        Started{"SlurmStep",
                {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "2"}},
                1,
                2,
                {},
                "Slurm (SLURM_PROCID)"},
        Started{"SlurmPmix",
                {{"PMIX_RANK", "1"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}},
                1,
                2,
                {},
                "PMIx (PMIX_RANK)"},
        Started{"Kubernetes",
                {{"JOB_COMPLETION_INDEX", "2"}, {"PUSHPULL_SIZE", "4"}},
                2,
                4,
                {},
                "a Kubernetes Indexed Job (JOB_COMPLETION_INDEX)"},
        Started{"Torchrun",
                {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}},
                1,
                2,
                1,
                "torchrun (RANK)"},
        Started{"RankAlone", {{"RANK", "general"}}, {}, {}, {}, ""},
        Started{"HandInsideSlurm",
                {{"PUSHPULL_RANK", "0"},
                 {"PUSHPULL_SIZE", "2"},
                 {"SLURM_PROCID", "3"},
                 {"SLURM_NTASKS", "4"},
                 {"SLURM_LOCALID", "3"}},
                0,
                2,
                {},
                "environment PUSHPULL_RANK"}),
    [](const auto& p) { return std::string(p.param.by); });

TEST(Environment, NonsenseIsNamed) {
  const auto word = detect_starter(environment({{"PUSHPULL_RANK", "first"}}));
  ASSERT_FALSE(word);
  EXPECT_EQ(word.error().message(),
            "environment variable PUSHPULL_RANK='first' is not a number of processes");
  const auto range = detect_starter(environment({{"PUSHPULL_RANK", "4"}, {"PUSHPULL_SIZE", "4"}}));
  ASSERT_FALSE(range);
  EXPECT_EQ(
      range.error().message(),
      "rank 4 from environment PUSHPULL_RANK is out of range: the job has 4 workers, so ranks "
      "go from 0 to 3");
  EXPECT_FALSE(detect_starter(environment({{"PUSHPULL_RANK", "0"}, {"PUSHPULL_SIZE", "0"}})));
  EXPECT_FALSE(detect_starter(environment({{"OMPI_COMM_WORLD_RANK", "-1"}})));
}

TEST(Environment, OneOfManyNeverRunsAlone) {
  for (const auto& [name, size] : Variables{{"SLURM_NTASKS", "4"},
                                            {"PMI_SIZE", "4"},
                                            {"OMPI_COMM_WORLD_SIZE", "4"},
                                            {"WORLD_SIZE", "4"},
                                            {"PUSHPULL_SIZE", "4"}}) {
    const auto alone = check_not_alone(environment({{name, size}}), Identity{0, 1});
    ASSERT_FALSE(alone) << name;
    EXPECT_NE(alone.error().message().find(name + "=4"), std::string::npos)
        << alone.error().message();
    EXPECT_TRUE(check_not_alone(environment({{name, size}}), Identity{0, 4}));
    EXPECT_TRUE(check_not_alone(environment({{name, "1"}}), Identity{0, 1}));
  }
  EXPECT_TRUE(check_not_alone(environment({}), Identity{0, 1}));
}

TEST(Environment, AllDisagreeingSettingsAreNamedOnce) {
  const auto alone =
      check_not_alone(environment({{"SLURM_NTASKS", "4"}, {"PMI_SIZE", "2"}}), Identity{0, 1});
  ASSERT_FALSE(alone);
  EXPECT_NE(alone.error().message().find("although PMI_SIZE=2, SLURM_NTASKS=4 in its environment"),
            std::string::npos)
      << alone.error().message();
}

TEST(Environment, ReadsTheRealOne) {
  ASSERT_EQ(setenv("PUSHPULL_TEST_VARIABLE", "a=b\nc", 1), 0);
  EXPECT_EQ(environment_variable("PUSHPULL_TEST_VARIABLE"), "a=b\nc");
  EXPECT_EQ(environment_variable("PUSHPULL_TEST_VARIABLE_NOT_SET"), std::nullopt);
  bool found = false;
  for (const std::string& entry : whole_environment()) {
    found = found || entry == "PUSHPULL_TEST_VARIABLE=a=b\nc";
  }
  EXPECT_TRUE(found);
}

TEST(Environment, StarterVariablesAreNotOurs) {
  for (const std::string_view name : starter_variables()) {
    EXPECT_NE(name.substr(0, 9), "PUSHPULL_");
  }
}

}  // namespace
}  // namespace pushpull
