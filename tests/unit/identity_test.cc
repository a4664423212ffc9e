#include "core/identity.h"

#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "tests/stores/memory_store.h"
#include "tests/support/process.h"

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

Result<Identity> identity(const Variables& variables, Registry& registry) {
  const auto config = Config::load({}, environment(variables));
  if (!config) return fail(config.error());
  auto settings = config->settings();
  if (!settings) return fail(settings.error());
  return find_identity(environment(variables), registry, &*settings);
}

std::string error_of(const Variables& variables) {
  Registry registry;
  const auto found = identity(variables, registry);
  return found ? "no error" : found.error().message();
}

TEST(Identity, EveryStarterIsUnderstood) {
  const std::vector<Variables> starters = {
      {{"PUSHPULL_RANK", "2"}, {"PUSHPULL_SIZE", "4"}},
      {{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}},
      {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}},
      {{"PMIX_RANK", "2"}, {"SLURM_NTASKS", "4"}},
      {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}},
      {{"JOB_COMPLETION_INDEX", "2"}, {"PUSHPULL_SIZE", "4"}},
      {{"RANK", "2"}, {"WORLD_SIZE", "4"}},
  };
  for (const Variables& variables : starters) {
    Registry registry;
    const auto found = identity(variables, registry);
    ASSERT_TRUE(found) << variables.begin()->first << ": " << found.error().message();
    EXPECT_EQ(found->rank, 2);
    EXPECT_EQ(found->size, 4);
  }
}

TEST(Identity, AStarterMayStartAsManyAsConfigured) {
  const Variables slurm = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}};
  Registry registry;
  Settings two;
  two.size = 2;  // as a configuration file says
  const auto found = find_identity(environment(slurm), registry, &two);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->size, 2);
  Settings four;
  four.size = 4;
  const auto refused = find_identity(environment(slurm), registry, &four);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "the configuration says 4 workers, but Slurm (SLURM_PROCID) says 2; start as many as "
            "configured, or leave `workers` out");
}

TEST(Identity, WhatTheEnvironmentSaysWins) {
  Registry registry;
  const auto found = identity({{"PUSHPULL_RANK", "0"}, {"PUSHPULL_SIZE", "3"}, {"RANK", "7"},
                               {"WORLD_SIZE", "8"}}, registry);
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->size, 3);
}

TEST(Identity, AnUnknownBackendListsTheKnownAsUsersWriteThem) {
  EXPECT_EQ(error_of({{"MXNET_KVSTORE_BACKEND", "glo"}}),
            "unknown backend 'glo'; set MXNET_KVSTORE_BACKEND to one of gloo, gloo-redis, mpi, self; did you "
            "mean 'gloo'?");
  // What core takes by itself is nobody's choice.
  for (const char* internal : {"shm", "hierarchical"}) {
    const std::string said = error_of({{"MXNET_KVSTORE_BACKEND", internal}});
    EXPECT_TRUE(said.starts_with("unknown backend '")) << said;
  }
}

TEST(Identity, ABackendThatContradictsTheEnvironmentIsNamed) {
  EXPECT_EQ(error_of({{"MXNET_KVSTORE_BACKEND", "self"}, {"PUSHPULL_RANK", "1"}, {"PUSHPULL_SIZE", "2"}}),
            "backend self says rank 0, but PUSHPULL_RANK says 1; take another backend, or leave PUSHPULL_RANK "
            "and PUSHPULL_SIZE unset");
}

TEST(Identity, HalfAnAnswerIsNoAnswer) {
  EXPECT_NE(error_of({{"PUSHPULL_SIZE", "4"}}).find("nothing says which one this is"),
            std::string::npos);
  EXPECT_NE(error_of({{"PUSHPULL_RANK", "1"}}).find("nothing says of how many"), std::string::npos);
  EXPECT_NE(error_of({{"JOB_COMPLETION_INDEX", "1"}}).find("nothing says of how many"),
            std::string::npos);
}

TEST(Identity, OneOfManyNeverRunsAlone) {
  const std::string error =
      error_of({{"PUSHPULL_RANK", "0"}, {"PUSHPULL_SIZE", "1"}, {"SLURM_NTASKS", "3"}});
  EXPECT_NE(error.find("would train alone"), std::string::npos) << error;
  EXPECT_NE(error.find("SLURM_NTASKS=3"), std::string::npos) << error;
}

TEST(Identity, AutoNeedsAStoreAndASize) {
  EXPECT_NE(error_of({{"PUSHPULL_RANK", "auto"}}).find("set PUSHPULL_SIZE"), std::string::npos);
  EXPECT_NE(
      error_of(
          {{"PUSHPULL_RANK", "auto"}, {"PUSHPULL_SIZE", "2"}, {"PUSHPULL_RENDEZVOUS", "tcp://a:1"}})
          .find("a store that is there before the ranks are"),
      std::string::npos);
}

TEST(Identity, AutoHandsOutEachRankOnce) {
  const testing::TemporaryDirectory folder;
  const Variables variables = {{"PUSHPULL_RANK", "auto"},
                               {"PUSHPULL_SIZE", "8"},
                               {"PUSHPULL_JOB", "drawn"},
                               {"PUSHPULL_RENDEZVOUS", "file://" + folder.path()}};
  for (int start = 0; start < 2; ++start) {  // the same job again
    std::vector<int> ranks(8, -1);
    {
      std::vector<std::jthread> threads;
      for (int& rank : ranks) {
        threads.emplace_back([&variables, &rank] {
          Registry registry;
          const auto found = identity(variables, registry);
          if (found) rank = found->rank;
        });
      }
    }
    EXPECT_EQ(std::set<int>(ranks.begin(), ranks.end()), (std::set<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  }
}

// Where it is asked for a Redis, a store in this process that remembers the URL.
class RedisInMemory final : public testing::MemoryStoreFactory {
 public:
  explicit RedisInMemory(std::string* url) : url_(url) {}
  std::string_view name() const override { return "redis"; }
  Result<std::unique_ptr<Store>> open(const StoreOptions& options, Deadline deadline) override {
    *url_ = options.url;
    return testing::MemoryStoreFactory::open(options, deadline);
  }

 private:
  std::string* const url_;
};

TEST(Identity, AutoMeetsWhereTheBackendDoes) {
  std::string url;
  Registry registry;
  registry.add(std::make_unique<RedisInMemory>(&url));
  const Variables variables = {
      {"PUSHPULL_RANK", "auto"}, {"PUSHPULL_SIZE", "2"}, {"MXNET_KVSTORE_BACKEND", "gloo-redis"}};
  for (const int rank : {0, 1}) {
    const auto found = identity(variables, registry);
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_EQ(found->rank, rank);
    EXPECT_EQ(url, "redis://127.0.0.1:6379/0");
  }
  EXPECT_NE(error_of({{"PUSHPULL_RANK", "auto"},
                      {"PUSHPULL_SIZE", "2"},
                      {"MXNET_KVSTORE_BACKEND", "gloo-redis"},
                      {"PUSHPULL_RENDEZVOUS", "file:///tmp/job"}})
                .find("backend gloo-redis needs a redis:// rendezvous, but it is file://"),
            std::string::npos);
}

}  // namespace
}  // namespace pushpull
