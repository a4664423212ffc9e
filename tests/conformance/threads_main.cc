// The suite over the backends whose ranks can be threads of one process.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "core/checked_collective.h"
#include "core/registry.h"
#include "tests/conformance/conformance.h"
#include "tests/support/loopback.h"
#include "tests/support/ranks.h"

namespace pushpull::testing {
namespace {

class ThreadGroups : public Groups {
 public:
  ThreadGroups(std::string backend, Settings settings)
      : backend_(std::move(backend)), settings_(std::move(settings)) {}

  void run(int ranks, const Body& body) override {
    auto backend = registry_.backend(backend_);
    ASSERT_TRUE(backend) << backend.error().message();
    LoopbackNetwork network(ranks);
    std::barrier<> all_done(ranks);
    run_ranks(ranks, [&](int rank) {
      auto made = (*backend)->connect(network.group(rank), settings_,
                                      deadline_in(std::chrono::seconds(30)));
      EXPECT_TRUE(made) << made.error().message();
      if (made) {
        auto collective = make_checked(std::move(*made));
        EXPECT_EQ(collective->rank(), rank);
        EXPECT_EQ(collective->size(), ranks);
        body(collective);
        // After a failed assertion the others may wait for what this rank never did.
        if (::testing::Test::HasFatalFailure()) collective.reset();
        all_done.arrive_and_wait();  // whoever closes early is a lost peer to the others
      } else {
        all_done.arrive_and_drop();
      }
    });
  }

  Rounding16 rounding() const override {
    return settings_.exchange == "ring" ? Rounding16::kEachAddition : Rounding16::kOnce;
  }

 private:
  std::string backend_;
  Settings settings_;
  Registry registry_;
};

std::shared_ptr<Groups> thread_backend(const std::string& backend, const std::string& exchange = "auto",
                                       size_t chunk_bytes = Settings{}.chunk_bytes) {
  Settings settings;
  settings.exchange = exchange;
  settings.chunk_bytes = chunk_bytes;
  return std::make_shared<ThreadGroups>(backend, settings);
}

// Shared memory needs no network; the control plane's part is in tests/kvstore.
std::shared_ptr<Groups> shared_memory(size_t chunk_bytes = Settings{}.shm_chunk_bytes) {
  Settings settings;
  settings.shm_chunk_bytes = chunk_bytes;
  return std::make_shared<ThreadGroups>("shm", settings);
}

const std::vector<int> kSizes{1, 2, 3, 4, 8};

// One line per backend and variant.
INSTANTIATE_TEST_SUITE_P(self, Conformance, cases(thread_backend("self"), {1}), case_name);
INSTANTIATE_TEST_SUITE_P(gloo, Conformance, cases(thread_backend("gloo"), kSizes), case_name);
INSTANTIATE_TEST_SUITE_P(gloo_ring, Conformance, cases(thread_backend("gloo", "ring"), {3, 5, 8}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(gloo_direct, Conformance,
                         cases(thread_backend("gloo", "direct", 20000), {3, 5}), case_name);
INSTANTIATE_TEST_SUITE_P(gloo_tiny_chunks, Conformance,
                         cases(thread_backend("gloo", "ring", 1024), {3, 5}), case_name);
INSTANTIATE_TEST_SUITE_P(shm, Conformance, cases(shared_memory(), kSizes), case_name);
INSTANTIATE_TEST_SUITE_P(shm_tiny_chunks, Conformance, cases(shared_memory(1024), {2, 5}), case_name);
INSTANTIATE_TEST_SUITE_P(shm_large_chunks, Conformance, cases(shared_memory(300'001), {3}), case_name);

}  // namespace
}  // namespace pushpull::testing
