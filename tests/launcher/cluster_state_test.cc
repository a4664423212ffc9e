#include "launcher/manifest/cluster_state.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace pushpull::launcher {
namespace {

// What kubectl prints, as far as it matters.
std::string pod(const std::string& name, int rank, const std::string& state) {
  return fmt::format(
      R"({{"kind":"Pod","metadata":{{"name":"{}","annotations":
          {{"batch.kubernetes.io/job-completion-index":"{}"}}}},"spec":{{"nodeName":"n1"}},
          "status":{{"phase":"Running","containerStatuses":[{{"state":{}}}]}}}})",
      name, rank, state);
}

std::string ended(const std::string& name, int rank, int code, const std::string& time) {
  return pod(name, rank,
             fmt::format(R"({{"terminated":{{"exitCode":{},"finishedAt":"{}"}}}})", code, time));
}

std::string job(const std::string& type, const std::string& reason = "") {
  return fmt::format(
      R"({{"kind":"Job","status":{{"conditions":[{{"type":"FailureTarget","status":"True"}},
          {{"type":"{}","status":"True","reason":"{}","message":"why"}}]}}}})",
      type, reason);
}

ClusterState state_of(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) list += (list.empty() ? "" : ",") + item;
  const auto state = parse_cluster_state(fmt::format(R"({{"items":[{}]}})", list));
  EXPECT_TRUE(state);
  return state ? *state : ClusterState{};
}

int code_of(const std::vector<std::string>& items) {
  ClusterVerdict verdict;
  verdict.observe(state_of(items));
  EXPECT_TRUE(verdict.ended());
  return verdict.exit_code();
}

TEST(ClusterState, PodsAndWhatTheyDo) {
  const auto state =
      state_of({pod("a", 0, R"({"running":{}})"), ended("b", 1, 3, "t"),
                pod("c", 2, R"({"waiting":{"reason":"ContainerCreating"}})"),
                pod("d", 3, R"({"waiting":{"reason":"ErrImagePull","message":"m"}})")});
  ASSERT_EQ(state.workers.size(), 4u);
  EXPECT_FALSE(state.job.found);
  EXPECT_TRUE(state.workers[0].started && !state.workers[0].ended);
  EXPECT_TRUE(state.workers[1].started && state.workers[1].ended);
  EXPECT_EQ(state.workers[1].exit_code, 3);
  EXPECT_EQ(state.workers[2].trouble, "");
  EXPECT_FALSE(state.workers[2].started);
  EXPECT_EQ(state.workers[3].trouble, "ErrImagePull: m");
  EXPECT_EQ(state.workers[3].node, "n1");
}

TEST(ClusterState, OddAnswersAreNoSurprise) {
  EXPECT_FALSE(parse_cluster_state(""));
  EXPECT_FALSE(parse_cluster_state("error: no server"));
  EXPECT_TRUE(parse_cluster_state("{}"));
  EXPECT_TRUE(parse_cluster_state(R"({"items":[1,{},{"kind":"Pod"},{"kind":"Job","status":3}]})"));
}

TEST(ClusterVerdict, ExitCodes) {
  EXPECT_EQ(code_of({job("Complete"), ended("a", 0, 75, "1")}), 0);
  EXPECT_EQ(code_of({job("Failed", "DeadlineExceeded")}), 124);
  EXPECT_EQ(code_of({job("Failed", "PodFailurePolicy"), ended("a", 0, 75, "1"),
                     ended("b", 1, 3, "0"), ended("c", 2, 143, "2")}),
            3);
  EXPECT_EQ(
      code_of({job("Failed", "FailedIndexes"), ended("a", 0, 75, "2"), ended("b", 1, 137, "1")}),
      137);
  EXPECT_EQ(code_of({job("Failed", "FailedIndexes"), ended("a", 0, 75, "2")}), 75);
  EXPECT_EQ(code_of({job("Failed", "Unknown")}), 1);
}

TEST(ClusterVerdict, RemembersPodsThatAreGone) {
  ClusterVerdict verdict;
  verdict.observe(state_of({ended("a", 1, 9, "1")}));
  EXPECT_FALSE(verdict.ended());
  verdict.observe(state_of({job("Failed", "PodFailurePolicy")}));
  EXPECT_TRUE(verdict.ended());
  EXPECT_EQ(verdict.exit_code(), 9);
  EXPECT_EQ(
      verdict.report(),
      "the job failed (PodFailurePolicy): why; rank 1 (pod a, node n1) ended with exit code 9");
}

}  // namespace
}  // namespace pushpull::launcher
