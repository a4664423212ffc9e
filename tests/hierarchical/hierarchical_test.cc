// What the suites of tests/conformance and tests/kvstore do not reach: the slices that core cuts
// uneven hosts into, and failures seen without a coordinator.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <random>

#include "core/checked_collective.h"
#include "tests/support/host_groups.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"

namespace pushpull {
namespace {

using namespace std::chrono_literals;
using testing::Bytes;

using Body = std::function<void(int rank, std::unique_ptr<Collective>&)>;

void run(const Layout& layout, const Settings& settings, const Body& body) {
  Registry registry;
  testing::HostNetwork network(layout);
  std::barrier<> all_done(layout.ranks());
  testing::run_ranks(layout.ranks(), [&](int rank) {
    auto made = network.connect(rank, registry, settings);
    EXPECT_TRUE(made) << made.error().message();
    if (made) {
      auto collective = make_checked(std::move(*made));
      body(rank, collective);
    }
    all_done.arrive_and_wait();
  });
}

const std::vector<std::vector<int>> kLayouts = {
    {0, 0, 1}, {0, 0, 1, 1}, {0, 1, 0, 2, 0, 2}, {0, 0, 0, 0, 1, 1}, {0, 1, 2, 3, 3}};

// Cut by core into as many slices as there are carriers, in pieces as batches have them.
TEST(Hierarchical, SumsInTheDocumentedOrderHoweverItIsCut) {
  constexpr size_t kCount = 150001;
  std::mt19937 random(11);
  for (const auto& hosts : kLayouts) {
    const Layout layout(hosts);
    for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
      std::vector<Bytes> in;
      for (int r = 0; r < layout.ranks(); ++r)
        in.push_back(testing::make_input(dtype, kCount, r, 3));
      const Reduce reduce{0.5, 3.0};
      const Bytes expected =
          testing::reference_sum_by_host(dtype, kCount, in, layout, layout.slices(), reduce);
      const size_t length = slice_length(kCount, layout.slices());
      std::vector<size_t> cuts{0, length};
      for (int i = 0; i < 3; ++i) cuts.push_back(random() % length);
      std::sort(cuts.begin(), cuts.end());
      run(layout, {}, [&](int rank, auto& c) {
        Bytes out(in[0].size());
        Part part{in[static_cast<size_t>(rank)].data(), out.data(), dtype, kCount, 0, 0, length};
        for (size_t i = 0; i + 1 < cuts.size(); ++i) {
          part.begin = cuts[i];
          part.end = cuts[i + 1];
          const auto ok = c->allreduce({&part, 1}, reduce, {});
          ASSERT_TRUE(ok) << ok.error().message();
        }
        EXPECT_EQ(out, expected) << "rank " << rank;
      });
    }
  }
}

// A carrier is lost: those who are connected with it say so with its rank in the whole group; an
// abort, which is what the coordinator makes of that, ends the others.
TEST(Hierarchical, ALostRankIsNamedAsTheGroupNamesIt) {
  const Layout layout(std::vector<int>{0, 0, 1, 1});
  for (int gone = 0; gone < 4; ++gone) {
    const int neighbour = gone ^ 1, counterpart = (gone + 2) % 4;
    std::atomic<int> noticed{0};
    run(layout, {}, [&](int rank, auto& c) {
      ASSERT_TRUE(c->barrier());
      if (rank == gone) {
        std::this_thread::sleep_for(20ms);
        c.reset();
        return;
      }
      std::vector<float> data(1000000, 1.0f);
      const Part part{data.data(), data.data(), DType::kFloat32,
                      data.size(), 0,           slice_length(data.size(), 4)};
      std::jthread coordinator;
      if (rank != neighbour && rank != counterpart)
        coordinator = std::jthread([&] {
          while (noticed < 2) std::this_thread::sleep_for(1ms);
          c->abort(Error(ErrorCode::kPeerLost, "the coordinator says so").at_rank(gone));
        });
      const auto ok = c->allreduce({&part, 1}, {}, {});
      ASSERT_FALSE(ok);
      EXPECT_EQ(ok.error().code(), ErrorCode::kPeerLost) << ok.error().message();
      EXPECT_EQ(ok.error().rank(), gone) << "rank " << rank << ": " << ok.error().message();
      EXPECT_FALSE(c->barrier());
      ++noticed;
      while (noticed < 3) std::this_thread::sleep_for(1ms);
    });
  }
}

TEST(Hierarchical, IsNotAskedForByName) {
  Registry registry;
  auto backend = registry.backend("hierarchical");
  ASSERT_TRUE(backend) << backend.error().message();
  const auto made = (*backend)->connect(Group{}, Settings{}, never());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace pushpull
