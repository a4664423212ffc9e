#include "core/agreement.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

const Member kLeader{.rank = 0, .host = "a", .pid = 1, .boot_id = {}, .network_namespace = 0, .address = {}};
const Member kOther{.rank = 3, .host = "b", .pid = 2, .boot_id = {}, .network_namespace = 0, .address = {}};

std::optional<Error> compare(const Settings& leader, const Settings& other, int size = 4) {
  return disagreement(kLeader, shared_settings(leader, 4), kOther, shared_settings(other, size));
}

TEST(Agreement, EqualSettingsAgree) {
  Settings redis;
  redis.backend = "gloo-redis";
  redis.heartbeat_timeout = std::chrono::seconds(1);
  EXPECT_FALSE(compare({}, {}));
  EXPECT_FALSE(compare({}, redis)) << "not theirs to share";
}

TEST(Agreement, NamesWhatDiffersAndWho) {
  Settings other;
  other.local = "backend";
  auto error = compare({}, other);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error->rank(), 3);
  EXPECT_EQ(error->message(),
            "PUSHPULL_LOCAL is auto on rank 0 (host a, pid 1), but backend on rank 3 (host b, pid 2); set "
            "it to the same value on every rank");
  error = compare({}, {}, 2);
  ASSERT_TRUE(error);
  EXPECT_TRUE(error->message().starts_with("PUSHPULL_SIZE is 4 on rank 0 (host a, pid 1), but 2 on rank 3"));
  const auto differs = [](auto change) {
    Settings changed;
    change(changed);
    return compare({}, changed).has_value();
  };
  EXPECT_TRUE(differs([](Settings& s) { s.backend = "mpi"; }));
  EXPECT_TRUE(differs([](Settings& s) { s.exchange = "ring"; }));
  EXPECT_TRUE(differs([](Settings& s) { s.chunk_bytes += 1; }));
  EXPECT_TRUE(differs([](Settings& s) { s.shm_chunk_bytes += 1; }));
}

TEST(Agreement, OtherVersionsAreSaid) {
  for (const char* theirs : {"", "\n", "PUSHPULL_SIZE=4\n", "PUSHPULL_SIZE=4\nPUSHPULL_NEW=1\n", "=", "x"}) {
    const auto error = disagreement(kLeader, shared_settings({}, 4), kOther, theirs);
    ASSERT_TRUE(error) << theirs;
    EXPECT_NE(error->message().find("versions"), std::string::npos) << error->message();
  }
}

}  // namespace
}  // namespace pushpull
