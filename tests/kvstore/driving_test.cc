// Ranks that share memory, whose waiting threads do the work themselves.
#include <chrono>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/kvstore.h"
#include "tests/support/kv_group.h"

namespace pushpull {
namespace {

using namespace std::chrono_literals;
using testing::group_settings;
using testing::run_group;

Tensor tensor(std::vector<float>& v) {
  return {v.data(), DType::kFloat32, {static_cast<int64_t>(v.size())}};
}

// Nothing needs the connection while some thread looks all the time; its silence means nothing then.
TEST(Driving, SmallCallsWithoutAPauseOutlastTheHeartbeatTimeout) {
  Settings settings = group_settings("gloo", 2);
  settings.local = "shm";
  settings.heartbeat_timeout = 400ms;
  run_group(settings, [](KVStore& kv) {
    std::vector<float> v(256, 1);
    const Tensor t = tensor(v);
    std::vector<float> go_on(1, 1);
    const Tensor go = tensor(go_on);
    const auto until = std::chrono::steady_clock::now() + 2s;
    while (go_on[0] != 0) {
      std::fill(v.begin(), v.end(), 1.f);
      const auto summed = kv.pushpull("k", {&t, 1}, {&t, 1}).wait();
      ASSERT_TRUE(summed) << summed.error().message();
      ASSERT_EQ(v[255], 2);
      go_on[0] = std::chrono::steady_clock::now() < until ? 1 : 0;
      const auto told = kv.broadcast("go on", go, {&go, 1}, 0).wait();
      ASSERT_TRUE(told) << told.error().message();
    }
  });
}

// A rank gives up while another is in a batch with it.
TEST(Driving, WhoGivesUpIsHeardByWhoRunsABatch) {
  for (int round = 0; round < 30; ++round) {
    Settings settings = group_settings("gloo", 2);
    settings.local = "shm";
    run_group(settings, [](KVStore& kv) {
      for (int call = 0; call < 20; ++call) {
        std::vector<float> v(256, 1);
        const Tensor t = tensor(v);
        auto work = kv.pushpull("k", {&t, 1}, {&t, 1});
        if (call == 19 && kv.rank() == 1) kv.abort(Error(ErrorCode::kAborted, "the loss is NaN"));
        const auto result = work.wait();
        if (call < 19 && kv.rank() == 1) {
          ASSERT_TRUE(result);
        }
        if (result) continue;
        EXPECT_NE(result.error().message().find("the loss is NaN"), std::string::npos)
            << result.error().message();
        break;
      }
    });
  }
}

}  // namespace
}  // namespace pushpull
