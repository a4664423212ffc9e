// The conformance suite over MPI, one process per rank: every process runs every test.
#include <gtest/gtest.h>
#include <mpi.h>

#include <string>

#include "core/checked_collective.h"
#include "core/registry.h"
#include "tests/conformance/conformance.h"
#include "tests/mpi/mpi_groups.h"

namespace pushpull::testing {
namespace {

class MpiGroups : public Groups {
 public:
  explicit MpiGroups(Settings settings) : settings_(std::move(settings)) {}

  void run(int, const Body& body) override {
    static Registry registry;
    auto backend = registry.backend("mpi");
    ASSERT_TRUE(backend) << backend.error().message();
    const Group group = world_group(std::to_string(runs_++));
    auto made = (*backend)->connect(group, settings_, deadline_in(std::chrono::seconds(60)));
    ASSERT_TRUE(made) << made.error().message();
    auto collective = make_checked(std::move(*made));
    EXPECT_EQ(collective->rank(), group.rank);
    EXPECT_EQ(collective->size(), group.size());
    body(collective);
    // The others may wait for what this rank never did.
    if (::testing::Test::HasFatalFailure()) MPI_Abort(MPI_COMM_WORLD, 1);
    world_barrier();
  }

  Rounding16 rounding() const override {
    return settings_.exchange == "ring" ? Rounding16::kEachAddition : Rounding16::kOnce;
  }
  // MPI does not tell when a peer has closed.
  bool notices_closed_peers() const override { return false; }

 private:
  const Settings settings_;
  int runs_ = 0;
};

std::shared_ptr<Groups> mpi(const std::string& exchange, size_t chunk_bytes) {
  Settings settings;
  settings.exchange = exchange;
  settings.chunk_bytes = chunk_bytes;
  return std::make_shared<MpiGroups>(settings);
}

std::vector<int> world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return {size};
}

INSTANTIATE_TEST_SUITE_P(mpi, Conformance, cases(mpi("auto", Settings{}.chunk_bytes), world_size()),
                         case_name);
// Messages of several blocks, and of odd sizes.
INSTANTIATE_TEST_SUITE_P(mpi_ring, Conformance, cases(mpi("ring", 700'001), world_size()),
                         case_name);

}  // namespace
}  // namespace pushpull::testing

int main(int argc, char** argv) {
  // As a program would that uses MPI beside us: then it finalises too, whatever became of the
  // groups.
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  pushpull::testing::world_barrier();
  MPI_Finalize();
  return failed;
}
