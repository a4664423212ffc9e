// The suite over the backends whose ranks can be threads of one process.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "core/checked_collective.h"
#include "core/registry.h"
#include "tests/conformance/conformance.h"
#include "tests/support/host_groups.h"
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
    run_connected(ranks, body, [&](int rank) {
      return (*backend)->connect(network.group(rank), settings_,
                                 deadline_in(std::chrono::seconds(30)));
    });
  }

  Rounding16 rounding() const override {
    return settings_.exchange == "ring" ? Rounding16::kEachAddition : Rounding16::kOnce;
  }

 protected:
  using Connect = std::function<Result<std::unique_ptr<Collective>>(int rank)>;
  void run_connected(int ranks, const Body& body, const Connect& connect) {
    std::barrier<> all_done(ranks);
    run_ranks(ranks, [&](int rank) {
      auto made = connect(rank);
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

  const Settings& settings() const { return settings_; }
  Registry& registry() { return registry_; }

 private:
  std::string backend_;
  Settings settings_;
  Registry registry_;
};

// Shared memory within hosts, a backend between them.
class HostGroups : public ThreadGroups {
 public:
  // Rank r is on host hosts[r], as far as there are ranks.
  HostGroups(std::string backend, Settings settings, std::vector<int> hosts)
      : ThreadGroups(backend, std::move(settings)),
        backend_(std::move(backend)),
        hosts_(std::move(hosts)) {}

  void run(int ranks, const Body& body) override {
    HostNetwork network(layout(ranks));
    run_connected(ranks, body, [&](int rank) {
      return network.connect(rank, registry(), settings(), backend_);
    });
  }

  Bytes expected_sum(DType dtype, size_t count, const std::vector<Bytes>& inputs,
                     const Reduce& reduce) const override {
    const int ranks = static_cast<int>(inputs.size());
    return reference_sum_by_host(dtype, count, inputs, layout(ranks), ranks, reduce, rounding());
  }

  // Not every rank is connected with every other.
  bool notices_closed_peers() const override { return false; }

 private:
  Layout layout(int ranks) const { return Layout({hosts_.data(), static_cast<size_t>(ranks)}); }

  const std::string backend_;
  const std::vector<int> hosts_;
};

std::shared_ptr<Groups> thread_backend(const std::string& backend,
                                       const std::string& exchange = "auto",
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

std::shared_ptr<Groups> on_hosts(const std::string& backend, const std::vector<int>& hosts,
                                 const std::string& exchange = "auto") {
  Settings settings;
  settings.exchange = exchange;
  return std::make_shared<HostGroups>(backend, settings, hosts);
}

const std::vector<int> kSizes{1, 2, 3, 4, 8};

// One line per backend and variant.
INSTANTIATE_TEST_SUITE_P(self, Conformance, cases(thread_backend("self"), {1}), case_name);
INSTANTIATE_TEST_SUITE_P(gloo, Conformance, cases(thread_backend("gloo"), kSizes), case_name);
INSTANTIATE_TEST_SUITE_P(gloo_ring, Conformance,
                         cases(thread_backend("gloo", "ring"), {2, 3, 5, 8}), case_name);
INSTANTIATE_TEST_SUITE_P(gloo_direct, Conformance,
                         cases(thread_backend("gloo", "direct", 20000), {3, 5}), case_name);
INSTANTIATE_TEST_SUITE_P(gloo_tiny_chunks, Conformance,
                         cases(thread_backend("gloo", "ring", 1024), {3, 5}), case_name);
INSTANTIATE_TEST_SUITE_P(shm, Conformance, cases(shared_memory(), kSizes), case_name);
INSTANTIATE_TEST_SUITE_P(shm_tiny_chunks, Conformance, cases(shared_memory(1024), {2, 5}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(shm_large_chunks, Conformance, cases(shared_memory(300'001), {3}),
                         case_name);

INSTANTIATE_TEST_SUITE_P(gloo_on_hosts_of_2, Conformance,
                         cases(on_hosts("gloo", {0, 0, 1, 1, 2, 2, 3, 3}), {3, 4, 8}), case_name);
INSTANTIATE_TEST_SUITE_P(gloo_on_uneven_hosts, Conformance,
                         cases(on_hosts("gloo", {0, 1, 0, 2, 0, 2}), {3, 6}), case_name);
INSTANTIATE_TEST_SUITE_P(gloo_ring_on_hosts, Conformance,
                         cases(on_hosts("gloo", {0, 1, 2, 0, 1, 2}, "ring"), {6}), case_name);

}  // namespace
}  // namespace pushpull::testing
