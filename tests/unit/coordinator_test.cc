#include "core/control/coordinator.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/unit/coordinator_fixture.h"

namespace pushpull {
namespace {

class CoordinatorTest : public CoordinatorFixture {
 protected:
  // Runs batches until none is left and returns their entries.
  std::vector<Batch> run_all() {
    for (size_t done = 0; done < all<Batch>().size(); ++done) run_batch(all<Batch>()[done].number);
    return all<Batch>();
  }
  void withdraw(int rank, uint64_t call, CallKind kind = CallKind::kPushPull) {
    coordinator->receive(
        rank, Withdraw{.kind = kind, .key = "w", .call = call, .reason = "no input"}, now);
  }
  std::vector<std::string> names(const Batch& batch) const {
    std::vector<std::string> found;
    for (const BatchEntry& entry : batch.entries)
      for (const Name& name : all<Name>())
        if (name.id == entry.id) found.push_back(name.key);
    return found;
  }
};

using Names = std::vector<std::string>;

// ---- joining ----

TEST_F(CoordinatorTest, WelcomesWhenTheLastHasJoined) {
  options.size = 3;
  options.run = "r1";
  make();
  EXPECT_EQ(coordinator->joined_so_far(), "0 of 3 ranks have joined; missing 0-2");
  ASSERT_TRUE(coordinator->join(member(2), now));
  ASSERT_TRUE(coordinator->join(member(0), now));
  EXPECT_EQ(coordinator->joined_so_far(), "2 of 3 ranks have joined; missing 1");
  EXPECT_FALSE(coordinator->all_joined());
  EXPECT_TRUE(sent.empty());
  ASSERT_TRUE(coordinator->join(member(1), now));
  EXPECT_TRUE(coordinator->all_joined());
  const auto welcome = only<Welcome>();
  EXPECT_EQ(welcome.run, "r1");
  ASSERT_EQ(welcome.members.size(), 3u);
  EXPECT_EQ(welcome.members[1].pid, 1001);

  for (int r = 0; r < 3; ++r) {
    EXPECT_TRUE(all<Ready>().empty());
    coordinator->receive(r, Connected{}, now);
  }
  EXPECT_EQ(all<Ready>().size(), 1u);
  EXPECT_TRUE(coordinator->all_connected());
}

TEST_F(CoordinatorTest, ListsTheMissingInShort) {
  options.size = 64;
  make();
  for (int r = 0; r < 64; ++r) {
    if (r % 2 == 0 || r < 20) {
      ASSERT_TRUE(coordinator->join(member(r), now));
    }
  }
  EXPECT_EQ(coordinator->joined_so_far(),
            "42 of 64 ranks have joined; missing 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43, "
            "45, 47, 49, 51, …");
}

TEST_F(CoordinatorTest, RefusesARankClaimedTwice) {
  options.size = 2;
  make();
  ASSERT_TRUE(coordinator->join(member(1), now));
  Member other = member(1);
  other.host = "elsewhere";
  other.pid = 5;
  const auto joined = coordinator->join(other, now);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      joined.error().message(),
      "rank 1 was claimed twice: by host node-b, pid 1001 and by host elsewhere, pid 5; every "
      "process needs a rank of its own");
}

TEST_F(CoordinatorTest, RefusesARankOutOfRange) {
  options.size = 2;
  make();
  for (const int rank : {-1, 2}) {
    const auto joined =
        coordinator->join({.rank = rank, .host = "h", .pid = 1, .boot_id = {}, .address = {}}, now);
    ASSERT_FALSE(joined);
    EXPECT_EQ(joined.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST_F(CoordinatorTest, ARankLostBeforeTheWelcomeMayJoinAgain) {
  options.size = 2;
  make();
  ASSERT_TRUE(coordinator->join(member(1), now));
  coordinator->disconnected(1, "reset", now);
  EXPECT_EQ(coordinator->joined_so_far(), "0 of 2 ranks have joined; missing 0-1");
  EXPECT_TRUE(coordinator->join(member(1), now));
  EXPECT_TRUE(coordinator->join(member(0), now));
  EXPECT_TRUE(coordinator->all_joined());
  EXPECT_FALSE(coordinator->aborted());
}

TEST_F(CoordinatorTest, SilenceCountsFromTheWelcome) {
  options.size = 2;
  make();
  ASSERT_TRUE(coordinator->join(member(1), now));
  pass(Seconds(60), {0, 1});
  ASSERT_TRUE(coordinator->join(member(0), now));
  pass(Seconds(9), {0, 1});
  EXPECT_FALSE(coordinator->aborted());
  pass(Seconds(2), {0, 1});
  EXPECT_EQ(only<Aborted>().culprit, 1);
}

// ---- batches ----

TEST_F(CoordinatorTest, RunsACallWhenAllHaveAnnouncedIt) {
  start(3);
  define_all(1, "w", tensor({64, 3}));
  announce(2, 1, 1);
  announce(0, 1, 1);
  EXPECT_TRUE(sent.empty());
  announce(1, 1, 1);
  const auto name = only<Name>();
  EXPECT_EQ(name.key, "w");
  const auto batch = only<Batch>();
  EXPECT_EQ(batch.number, 1u);
  ASSERT_EQ(batch.entries.size(), 1u);
  EXPECT_EQ(batch.entries[0].id, name.id);
  EXPECT_EQ(batch.entries[0].call, 1u);
  EXPECT_EQ(batch.entries[0].begin, 0u);
  EXPECT_EQ(batch.entries[0].end, slice_length(192, 3));
  EXPECT_TRUE(batch.entries[0].last);
}

TEST_F(CoordinatorTest, NothingRunsBeforeAllAreConnected) {
  options.size = 2;
  make();
  for (int r = 0; r < 2; ++r) ASSERT_TRUE(coordinator->join(member(r), now));
  define_all(1, "w", tensor({4}));
  announce_all(1, 1);
  coordinator->receive(1, Connected{}, now);
  EXPECT_TRUE(all<Batch>().empty());
  coordinator->receive(0, Connected{}, now);
  EXPECT_EQ(all<Batch>().size(), 1u);
}

TEST_F(CoordinatorTest, OneBatchRunsAndOneWaits) {
  start(2);
  for (uint32_t id = 0; id < 6; ++id) {
    define_all(id, "k" + std::to_string(id), tensor({8}));
    announce_all(id, 1);
  }
  EXPECT_EQ(all<Batch>().size(), 1u);
  EXPECT_EQ(names(all<Batch>()[0]), Names({"k0"}));
  coordinator->batch_started(1, now);
  ASSERT_EQ(all<Batch>().size(), 2u);  // everything that had become ready meanwhile, fused
  EXPECT_EQ(names(all<Batch>()[1]), Names({"k1", "k2", "k3", "k4", "k5"}));
  announce_all(0, 2);
  EXPECT_EQ(all<Batch>().size(), 2u);
  coordinator->batch_started(2, now);
  EXPECT_EQ(all<Batch>().size(), 3u);
}

TEST_F(CoordinatorTest, RankZerosPriorityOrders) {
  start(2);
  const int priorities[] = {0, -5, 7, 7, 100};
  for (uint32_t id = 0; id < 5; ++id) {
    define_all(id, "k" + std::to_string(id), tensor({8}));
    announce(0, id, 1, priorities[id]);
    announce(1, id, 1, -priorities[id]);
  }
  EXPECT_EQ(names(run_all()[0]), Names({"k0"}));
  EXPECT_EQ(names(run_all()[1]), Names({"k4", "k2", "k3", "k1"}));
}

TEST_F(CoordinatorTest, FusesUpToTheLimit) {
  options.fusion_bytes = 1000;
  start(2);
  const int64_t counts[] = {1, 100, 100, 50, 1, 1};  // float32: 400 bytes for 100
  for (uint32_t id = 0; id < 6; ++id) {
    define_all(id, "k" + std::to_string(id), tensor({counts[id]}));
    announce_all(id, 1);
  }
  const auto batches = run_all();
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(names(batches[1]), Names({"k1", "k2", "k3"}));
  EXPECT_EQ(names(batches[2]), Names({"k4", "k5"}));
}

TEST_F(CoordinatorTest, LargeCallsComeInPieces) {
  options.fusion_bytes = 4096;
  start(2);
  define_all(1, "big", tensor({3000}));  // slices of 1504, 8 bytes per index over both
  define_all(2, "urgent", tensor({10}));
  announce_all(1, 1, 0);
  const auto first = only<Batch>().entries;
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].begin, 0u);
  EXPECT_EQ(first[0].end, 512u);
  EXPECT_FALSE(first[0].last);
  announce_all(2, 1, 5);
  const auto batches = run_all();
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_EQ(names(batches[1]), Names({"urgent"}));
  EXPECT_EQ(batches[2].entries[0].begin, 512u);
  EXPECT_EQ(batches[2].entries[0].end, 1024u);
  EXPECT_FALSE(batches[2].entries[0].last);
  EXPECT_EQ(batches[3].entries[0].begin, 1024u);
  EXPECT_EQ(batches[3].entries[0].end, slice_length(3000, 2));
  EXPECT_TRUE(batches[3].entries[0].last);
}

TEST_F(CoordinatorTest, BroadcastPiecesAreOfTheTensor) {
  options.fusion_bytes = 4096;
  start(2);
  define_all(1, "big", broadcast({3000}, 1), CallKind::kBroadcast);
  announce_all(1, 1);
  const auto batches = run_all();
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[0].kind, CallKind::kBroadcast);
  EXPECT_EQ(batches[0].entries[0].end, 1024u);
  EXPECT_EQ(batches[2].entries[0].begin, 2048u);
  EXPECT_EQ(batches[2].entries[0].end, 3000u);
  EXPECT_TRUE(batches[2].entries[0].last);
}

TEST_F(CoordinatorTest, APieceIsNeverSmallerThanAVector) {
  options.fusion_bytes = 1;
  start(2);
  define_all(1, "w", tensor({100}));
  announce_all(1, 1);
  const auto batches = run_all();
  ASSERT_EQ(batches.size(), slice_length(100, 2) / 16);
  uint64_t at = 0;
  for (const Batch& b : batches) {
    EXPECT_EQ(b.entries[0].begin, at);
    at = b.entries[0].end;
    EXPECT_EQ(at % 16, 0u);
  }
}

TEST_F(CoordinatorTest, EmptyTensorsAndBarriers) {
  start(2);
  define_all(1, "none", tensor({0, 5}));
  define_all(2, "", Signature{}, CallKind::kBarrier);
  define_all(3, "nothing", broadcast({0}), CallKind::kBroadcast);
  announce_all(2, 1);
  announce_all(1, 1);
  announce_all(3, 1);
  announce_all(2, 2);
  const auto batches = run_all();
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_EQ(batches[0].kind, CallKind::kBarrier);
  for (const Batch& b : batches) {
    ASSERT_EQ(b.entries.size(), 1u);
    EXPECT_EQ(b.entries[0].begin, 0u);
    EXPECT_EQ(b.entries[0].end, 0u);
    EXPECT_TRUE(b.entries[0].last);
  }
  EXPECT_EQ(batches[3].kind, CallKind::kBarrier);
}

TEST_F(CoordinatorTest, OnlyLikeCallsShareABatch) {
  start(2);
  Signature scaled = tensor({8});
  scaled.reduce.postscale = 0.5;
  define_all(0, "first", tensor({8}));
  define_all(1, "sum", tensor({8}));
  define_all(2, "sum16", tensor({8}, DType::kFloat16));
  define_all(3, "mean", scaled);
  define_all(4, "from0", broadcast({8}, 0), CallKind::kBroadcast);
  define_all(5, "from1", broadcast({8}, 1), CallKind::kBroadcast);
  define_all(6, "too0", broadcast({8}, 0), CallKind::kBroadcast);
  for (uint32_t id = 0; id < 7; ++id) announce_all(id, 1, 0);
  run_all();
  const auto batches = run_all();
  ASSERT_EQ(batches.size(), 5u);
  EXPECT_EQ(names(batches[1]), Names({"sum", "sum16"}));
  EXPECT_EQ(names(batches[2]), Names({"mean"}));
  EXPECT_EQ(names(batches[3]), Names({"from0", "too0"}));
  EXPECT_EQ(names(batches[4]), Names({"from1"}));
}

TEST_F(CoordinatorTest, CallsOfOneKeyNeverShareABatch) {
  start(2);
  define_all(1, "w", tensor({8}));
  define_all(2, "v", tensor({8}));
  announce_all(1, 1, 0);
  for (uint64_t call = 2; call <= 4; ++call) announce_all(1, call, static_cast<int>(call));
  announce_all(2, 1, -1);
  const auto batches = run_all();
  ASSERT_EQ(batches.size(), 4u);
  EXPECT_EQ(batches[1].entries.size(), 2u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(batches[i].entries[0].call, i + 1);
}

TEST_F(CoordinatorTest, BroadcastAndPushpullOfOneKeyAreTwoCalls) {
  start(2);
  define_all(1, "w", tensor({8}));
  define_all(2, "w", broadcast({8}), CallKind::kBroadcast);
  announce(0, 2, 1);
  announce(0, 1, 1);
  announce(1, 1, 1);
  announce(1, 2, 1);
  const auto batches = run_all();
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].kind, CallKind::kPushPull);
  EXPECT_EQ(batches[1].kind, CallKind::kBroadcast);
  EXPECT_NE(batches[0].entries[0].id, batches[1].entries[0].id);
}

TEST_F(CoordinatorTest, AGroupOfOne) {
  start(1);
  define_all(1, "w", tensor({8}));
  announce_all(1, 1);
  EXPECT_EQ(only<Batch>().entries.size(), 1u);
}

// ---- mismatch ----

TEST_F(CoordinatorTest, MismatchNamesEverySide) {
  start(4);
  define(0, 1, "w", tensor({64, 3}));
  define(1, 1, "w", tensor({64, 3}, DType::kFloat16));
  define(2, 1, "w", tensor({64, 3}, DType::kFloat16));
  define(3, 1, "w", tensor({3, 64}));
  for (const int r : {2, 1, 3}) announce(r, 1, 1);
  EXPECT_TRUE(sent.empty());
  announce(0, 1, 1);
  const auto failed = only<Failed>();
  EXPECT_EQ(failed.code, ErrorCode::kMismatch);
  EXPECT_EQ(failed.call, 1u);
  EXPECT_EQ(
      failed.message,
      "key 'w' differs between ranks: rank 0 has float32 (64, 3), ranks 1-2 have float16 (64, "
      "3), rank 3 has float32 (3, 64); give this key the same shape, dtype and scale on every "
      "rank");
  EXPECT_EQ(only<Name>().id, failed.id);
  EXPECT_TRUE(all<Batch>().empty());
}

TEST_F(CoordinatorTest, TheGroupLivesOnAfterAMismatch) {
  start(3);
  define(0, 1, "w", tensor({4}));
  define(1, 1, "w", tensor({4}));
  define(2, 7, "w", tensor({5}));
  define(2, 8, "w", tensor({4}));
  announce(0, 1, 1);
  announce(1, 1, 1);
  announce(2, 7, 1);
  EXPECT_EQ(only<Failed>().culprit, 2);
  announce(0, 1, 2);
  announce(1, 1, 2);
  announce(2, 8, 2);
  EXPECT_EQ(only<Batch>().entries[0].call, 2u);
}

TEST_F(CoordinatorTest, RootsMustAgree) {
  start(2);
  define(0, 1, "w", broadcast({4}, 0), CallKind::kBroadcast);
  define(1, 1, "w", broadcast({4}, 1), CallKind::kBroadcast);
  announce_all(1, 1);
  EXPECT_EQ(only<Failed>().message,
            "key 'w' differs between ranks: rank 0 has float32 (4) from root 0, rank 1 has float32 "
            "(4) from root 1; give this key the same shape, dtype and root on every rank");
}

TEST_F(CoordinatorTest, KindsThatFaceEachOtherFail) {
  start(3);
  define(0, 1, "w", tensor({4}));
  define(2, 1, "w", tensor({4}));
  define(1, 1, "w", broadcast({4}), CallKind::kBroadcast);
  announce(0, 1, 1);
  announce(1, 1, 1);
  announce(2, 1, 1);
  pass(Milliseconds(4900));
  EXPECT_TRUE(all<Failed>().empty());
  pass(Milliseconds(200));
  const auto failed = all<Failed>();
  ASSERT_EQ(failed.size(), 6u);
  // Each rank hears of the call that it has not made before it hears of its own.
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(sent[sent.size() - 6 + 2 * r].first, static_cast<int>(r));
    EXPECT_NE(failed[2 * r].id, failed[2 * r + 1].id);
    EXPECT_EQ(failed[2 * r].id == failed[0].id, r != 1);
  }
  for (const auto& f : failed) {
    EXPECT_EQ(f.code, ErrorCode::kMismatch);
    EXPECT_EQ(f.culprit, 1);
    EXPECT_EQ(f.message,
              "key 'w' differs between ranks: ranks 0, 2 called pushpull (call 1), rank 1 called "
              "broadcast (call 1); make the same calls of this key on every rank");
  }
  // Both count as made everywhere.
  define(0, 2, "w", broadcast({4}), CallKind::kBroadcast);
  define(2, 2, "w", broadcast({4}), CallKind::kBroadcast);
  announce(0, 2, 2);
  announce(1, 1, 2);
  announce(2, 2, 2);
  EXPECT_EQ(only<Batch>().entries[0].call, 2u);
}

TEST_F(CoordinatorTest, KindsInAnotherOrderDoNotFail) {
  start(2);
  define_all(1, "w", tensor({4}));
  define_all(2, "w", broadcast({4}), CallKind::kBroadcast);
  announce(0, 1, 1);
  announce(1, 2, 1);
  pass(Seconds(4));
  announce(1, 1, 1);
  pass(Seconds(60));
  announce(0, 2, 1);
  pass(Seconds(1));
  EXPECT_TRUE(all<Failed>().empty());
  EXPECT_EQ(run_all().size(), 2u);
}

TEST_F(CoordinatorTest, FacingKindsAreFoundBehindACallThatBecameReady) {
  start(2);
  define(0, 1, "w", tensor({4}));
  define(1, 1, "w", tensor({4}));
  define(1, 2, "w", broadcast({4}), CallKind::kBroadcast);
  announce(0, 1, 1);
  announce(0, 1, 2);
  announce(1, 2, 1);  // faces call 1 of rank 0 …
  pass(Seconds(1));
  announce(1, 1, 1);  // … which comes, and now faces call 2
  pass(Seconds(11));
  ASSERT_EQ(all<Failed>().size(), 4u);
  EXPECT_EQ(all<Failed>()[0].call + all<Failed>()[1].call, 3u);
}

// ---- stall ----

TEST_F(CoordinatorTest, StallWarnsAtDoublingIntervalsAndFails) {
  options.stall_warning = Seconds(30);
  options.stall_timeout = Seconds(600);
  start(5);
  define_all(1, "w", tensor({4}));
  for (const int r : {0, 4}) announce(r, 1, 1);
  pass(Milliseconds(29'900));
  EXPECT_TRUE(all<Warning>().empty());
  pass(Milliseconds(200));
  EXPECT_EQ(only<Warning>().message,
            "pushpull call 1 of key 'w' has waited 30 s for rank 1 (host node-b), rank 2 (host "
            "node-c), rank 3 (host node-d)");
  announce(2, 1, 1);
  pass(Seconds(569));
  const auto warnings = all<Warning>();
  ASSERT_EQ(warnings.size(), 5u);  // at 30, 60, 120, 240, 480
  EXPECT_EQ(warnings[4].message,
            "pushpull call 1 of key 'w' has waited 480 s for rank 1 (host node-b), rank 3 (host "
            "node-d)");
  EXPECT_TRUE(all<Failed>().empty());
  pass(Seconds(1));
  ASSERT_EQ(all<Failed>().size(), 3u);
  EXPECT_EQ(all<Failed>()[0].code, ErrorCode::kTimeout);
  EXPECT_EQ(all<Failed>()[0].message,
            "pushpull call 1 of key 'w' has waited 600 s for rank 1 (host node-b), rank 3 (host "
            "node-d)");
  // A rank that comes after all is too late for this call, and in time for the next.
  announce(3, 1, 1);
  ASSERT_EQ(all<Failed>().size(), 4u);
  EXPECT_EQ(sent.back().first, 3);
  announce(1, 1, 1);
  announce_all(1, 2);
  EXPECT_EQ(all<Failed>().size(), 5u);
  EXPECT_EQ(only<Batch>().entries[0].call, 2u);
}

TEST_F(CoordinatorTest, WhoMadeOtherCallsSinceHearsOfTheTimeoutAtOnce) {
  options.stall_timeout = Seconds(20);
  start(3);
  define_all(1, "skipped", tensor({4}));
  define_all(2, "other", tensor({4}));
  announce(0, 1, 1);
  pass(Seconds(1));
  announce(1, 2, 1);  // has gone on without the first; rank 2 is late with everything
  pass(Milliseconds(19'100));
  std::vector<int> told;
  for (const auto& [to, message] : sent)
    if (std::holds_alternative<Failed>(message)) told.push_back(to);
  EXPECT_EQ(told, std::vector<int>({0, 1}));
  announce(2, 1, 1);
  EXPECT_EQ(sent.back().first, 2);
  EXPECT_TRUE(std::holds_alternative<Failed>(sent.back().second));
}

TEST_F(CoordinatorTest, CallsThatWaitForTheSameRanksShareAWarning) {
  start(2);
  for (uint32_t id = 1; id <= 12; ++id) {
    define_all(id, "k" + std::to_string(id), tensor({4}));
    announce(id == 12 ? 1 : 0, id, 1);
    now += Milliseconds(10);
  }
  pass(Seconds(31));
  const auto warnings = all<Warning>();
  ASSERT_EQ(warnings.size(), 2u);
  const bool first_is_lone = warnings[0].message.find("k12") != std::string::npos;
  EXPECT_EQ(warnings[first_is_lone ? 1 : 0].message.substr(0, 60),
            "pushpull call 1 of key 'k1', pushpull call 1 of key 'k2', pu");
  EXPECT_NE(warnings[first_is_lone ? 1 : 0].message.find(
                "and 3 more have waited 30 s for rank 1 (host node-b)"),
            std::string::npos)
      << warnings[first_is_lone ? 1 : 0].message;
}

TEST_F(CoordinatorTest, BarriersStallAlike) {
  start(2);
  define_all(1, "", Signature{}, CallKind::kBarrier);
  announce(1, 1, 1);
  pass(Seconds(601));
  EXPECT_EQ(all<Warning>()[0].message, "barrier call 1 has waited 30 s for rank 0 (host node-a)");
  EXPECT_EQ(only<Failed>().culprit, 0);
}

// ---- join ----

TEST_F(CoordinatorTest, CallsGoOnWithoutRanksThatHaveJoined) {
  start(3);
  define_all(1, "", Signature{}, CallKind::kJoin);
  define_all(2, "w", tensor({4}));
  announce(0, 2, 1);
  announce(2, 1, 1);
  EXPECT_TRUE(sent.empty());
  announce(1, 2, 1);
  ASSERT_EQ(sent.size(), 3u);
  EXPECT_EQ(std::get<Name>(sent[0].second).key, "w");
  EXPECT_EQ(sent[1].first, 2);
  const auto stand_in = std::get<StandIn>(sent[1].second);
  EXPECT_EQ(stand_in.call, 1u);
  EXPECT_EQ(stand_in.signature, tensor({4}));
  EXPECT_EQ(std::get<Batch>(sent[2].second).entries.size(), 1u);
  run_batch(1);

  sent.clear();
  announce(0, 1, 1);
  announce(1, 2, 2);
  EXPECT_EQ(all<StandIn>().size(), 2u);
  EXPECT_EQ(only<Batch>().entries[0].call, 2u);
  run_batch(2);

  sent.clear();
  announce(1, 1, 1);
  EXPECT_EQ(only<Batch>().kind, CallKind::kJoin);
  EXPECT_EQ(only<Batch>().entries[0].begin, 1u);  // the last one to join
  run_batch(3);

  // All are back: every rank counts again.
  sent.clear();
  announce(0, 2, 3);
  announce(1, 2, 3);
  EXPECT_TRUE(sent.empty());
  announce(2, 2, 3);
  EXPECT_EQ(only<Batch>().entries[0].call, 3u);
}

TEST_F(CoordinatorTest, AJoinCompletesWhatWaitsForNobodyElse) {
  start(2);
  define_all(1, "", Signature{}, CallKind::kJoin);
  define_all(2, "b", tensor({4}));
  define_all(3, "a", tensor({2}));
  define_all(4, "", Signature{}, CallKind::kBarrier);
  announce(0, 2, 1);
  announce(0, 3, 1);
  announce(0, 4, 1);
  announce(1, 1, 1);
  EXPECT_EQ(all<StandIn>().size(), 3u);
  run_batch(1);
  run_batch(2);
  std::vector<CallKind> kinds;
  for (const Batch& batch : all<Batch>()) kinds.push_back(batch.kind);
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_EQ(kinds[0], CallKind::kPushPull);
  EXPECT_EQ(kinds[1], CallKind::kBarrier);
}

TEST_F(CoordinatorTest, ABroadcastFailsWhileARankHasJoined) {
  start(2);
  define_all(1, "", Signature{}, CallKind::kJoin);
  define_all(2, "w", broadcast({4}), CallKind::kBroadcast);
  announce(1, 1, 1);
  announce(0, 2, 1);
  EXPECT_EQ(only<Failed>().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(only<Failed>().message,
            "broadcast call 1 of key 'w' cannot go on: rank 1 (host node-b, pid 1001) has joined, as "
            "one that has no more data, and would miss the value; broadcast before the first join() "
            "or after it");
  announce(0, 1, 1);
  sent.clear();
  run_batch(1);
  announce(0, 2, 2);
  announce(1, 2, 2);
  EXPECT_EQ(only<Batch>().entries[0].call, 2u);
}

TEST_F(CoordinatorTest, AJoinMayTakeAsLongAsOthersHaveData) {
  start(2);
  define_all(1, "", Signature{}, CallKind::kJoin);
  announce(1, 1, 1);
  pass(Seconds(2000));
  EXPECT_TRUE(all<Warning>().empty());
  EXPECT_TRUE(all<Failed>().empty());
}

TEST_F(CoordinatorTest, AJoinFailsWhenARankLeaves) {
  start(2);
  define_all(1, "", Signature{}, CallKind::kJoin);
  announce(1, 1, 1);
  coordinator->receive(0, Goodbye{}, now);
  EXPECT_EQ(only<Failed>().message, "rank 0 (host node-a, pid 1000) left before making join call 1");
}

TEST_F(CoordinatorTest, MismatchesAmongTheRestNameTheRest) {
  start(3);
  define_all(1, "", Signature{}, CallKind::kJoin);
  define(0, 2, "w", tensor({4}));
  define(1, 2, "w", tensor({5}));
  announce(2, 1, 1);
  announce(0, 2, 1);
  announce(1, 2, 1);
  EXPECT_EQ(only<Failed>().message,
            "key 'w' differs between ranks: rank 0 has float32 (4), rank 1 has float32 (5); give this "
            "key the same shape, dtype and scale on every rank");
}

TEST_F(CoordinatorTest, CallsThatCrossAJoin) {
  start(2);
  define_all(1, "", Signature{}, CallKind::kJoin);
  define_all(2, "w", tensor({4}));
  announce(1, 1, 1);
  announce(0, 2, 1);
  // Rank 1 takes part already; it took back a call of its own that it made too late.
  withdraw(1, 1);
  EXPECT_TRUE(all<Failed>().empty());
  withdraw(1, 2);
  announce(0, 2, 2);
  EXPECT_EQ(all<Failed>().back().code, ErrorCode::kAborted);
  EXPECT_FALSE(coordinator->aborted());
  announce(1, 2, 3);
  EXPECT_TRUE(coordinator->aborted());  // that one is nonsense
}

TEST_F(CoordinatorTest, StallLimitsOfZeroMeanNever) {
  options.stall_warning = Seconds(0);
  options.stall_timeout = Seconds(0);
  start(2);
  define_all(1, "w", tensor({4}));
  announce(0, 1, 1);
  pass(Seconds(2000));
  EXPECT_TRUE(all<Warning>().empty());
  EXPECT_TRUE(all<Failed>().empty());
}

TEST_F(CoordinatorTest, StallTimeoutWithoutWarning) {
  options.stall_warning = Seconds(0);
  options.stall_timeout = Seconds(5);
  start(2);
  define_all(1, "w", tensor({4}));
  announce(0, 1, 1);
  pass(Milliseconds(5100));
  EXPECT_TRUE(all<Warning>().empty());
  EXPECT_EQ(only<Failed>().culprit, 1);
}

TEST_F(CoordinatorTest, ACallThatRunsIsNotStalled) {
  start(2);
  define_all(1, "w", tensor({4}));
  announce_all(1, 1);
  announce_all(1, 2);
  pass(Seconds(700));
  EXPECT_TRUE(all<Warning>().empty());
  EXPECT_TRUE(all<Failed>().empty());
}

// ---- withdraw ----

TEST_F(CoordinatorTest, AWithdrawnCallFailsEverywhere) {
  start(4);
  define_all(1, "w", tensor({4}));
  announce(0, 1, 1);
  withdraw(2, 1);
  ASSERT_EQ(all<Failed>().size(), 2u);  // ranks 0 and 2; the others hear of it when they come
  announce(1, 1, 1);
  withdraw(3, 1);
  const auto failed = all<Failed>();
  ASSERT_EQ(failed.size(), 4u);
  const int order[] = {0, 2, 1, 3};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sent[sent.size() - 4 + i].first, order[i]);
    EXPECT_EQ(failed[i].culprit, 2);
    EXPECT_EQ(failed[i].code, ErrorCode::kAborted);
    EXPECT_EQ(failed[i].message,
              "rank 2 (host node-c, pid 1002) withdrew pushpull call 1 of key 'w': no input");
  }
  announce_all(1, 2);
  EXPECT_EQ(only<Batch>().entries[0].call, 2u);
  EXPECT_EQ(all<Failed>().size(), 4u);
}

TEST_F(CoordinatorTest, WithdrawBeforeAnybodyElseKnowsTheKey) {
  start(2);
  withdraw(1, 2, CallKind::kBroadcast);
  EXPECT_EQ(only<Name>().key, "w");
  EXPECT_EQ(only<Failed>().call, 2u);
  define_all(1, "w", broadcast({4}), CallKind::kBroadcast);
  announce_all(1, 1);
  announce(0, 1, 2);
  announce_all(1, 3);
  const auto batches = run_all();
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[0].entries[0].call, 1u);
  EXPECT_EQ(batches[1].entries[0].call, 3u);
  EXPECT_EQ(all<Failed>().size(), 2u);
}

TEST_F(CoordinatorTest, AWithdrawnCallKeepsNobodyFromLeaving) {
  start(3);
  define_all(1, "w", tensor({4}));
  announce(0, 1, 1);
  withdraw(2, 1);
  coordinator->receive(0, Goodbye{}, now);
  EXPECT_EQ(all<Farewell>().size(), 1u);
  coordinator->receive(2, Goodbye{}, now);
  EXPECT_EQ(all<Farewell>().size(), 2u);
  pass(Seconds(700), {0, 2});
  EXPECT_TRUE(all<Warning>().empty());
  announce(1, 1, 1);
  EXPECT_EQ(all<Failed>().size(), 3u);
  EXPECT_EQ(all<Failed>()[2].culprit, 2);
  EXPECT_EQ(sent.back().first, 1);
}

// ---- death ----

TEST_F(CoordinatorTest, ALostConnectionIsADeath) {
  start(4);
  coordinator->disconnected(3, "Connection reset by peer", now);
  const auto aborted = only<Aborted>();
  EXPECT_EQ(aborted.code, ErrorCode::kPeerLost);
  EXPECT_EQ(aborted.culprit, 3);
  EXPECT_TRUE(aborted.restartable);
  EXPECT_EQ(
      aborted.message,
      "rank 3 (host node-d, pid 1003) died: its connection was lost (Connection reset by peer)");
  EXPECT_TRUE(coordinator->aborted());
  sent.clear();
  coordinator->disconnected(2, "", now);
  announce(1, 1, 1);
  coordinator->receive(1, GiveUp{"x"}, now);
  coordinator->abort(Error(ErrorCode::kAborted, "again"));
  pass(Seconds(60), {0, 1});
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(coordinator->next_timer(), Clock::time_point::max());
  EXPECT_FALSE(coordinator->join(member(0), now));
}

TEST_F(CoordinatorTest, SilenceIsADeath) {
  start(3);
  pass(Milliseconds(9900), {2});
  EXPECT_FALSE(coordinator->aborted());
  pass(Milliseconds(200), {2});
  const auto aborted = only<Aborted>();
  EXPECT_EQ(aborted.culprit, 2);
  EXPECT_EQ(aborted.message, "rank 2 (host node-c, pid 1002) went silent: nothing heard for 10 s");
  EXPECT_TRUE(aborted.restartable);
}

TEST_F(CoordinatorTest, RanksHearFromTheCoordinator) {
  start(2);
  pass(Seconds(10));
  EXPECT_GE(all<CoordinatorHeartbeat>().size(), 4u);
}

TEST_F(CoordinatorTest, TimeInWhichThisProcessWasStoppedIsNotHeldAgainstOthers) {
  start(3);
  pass(Seconds(1));
  now += Seconds(30);
  coordinator->tick(now);
  EXPECT_FALSE(coordinator->aborted());
  pass(Seconds(1));
  EXPECT_FALSE(coordinator->aborted());
  pass(Seconds(10), {1});
  EXPECT_EQ(only<Aborted>().culprit, 1);
}

TEST_F(CoordinatorTest, EvidenceWaitsForALostConnection) {
  start(4);
  coordinator->receive(1, Evidence{.batch = 1, .suspect = 2, .message = "reset"}, now);
  pass(Milliseconds(500));
  EXPECT_FALSE(coordinator->aborted());
  coordinator->disconnected(3, "", now);
  EXPECT_EQ(only<Aborted>().culprit, 3);
}

TEST_F(CoordinatorTest, EvidenceWithoutALostConnectionNamesTheReporter) {
  start(4);
  coordinator->receive(1, Evidence{.batch = 7, .suspect = 2, .message = "reset by rank 2"}, now);
  pass(Milliseconds(200));
  coordinator->receive(3, Evidence{.batch = 7, .suspect = 1, .message = "aborted"}, now);
  pass(Milliseconds(700));
  EXPECT_FALSE(coordinator->aborted());
  pass(Milliseconds(200));
  const auto aborted = only<Aborted>();
  EXPECT_EQ(aborted.code, ErrorCode::kAborted);
  EXPECT_EQ(aborted.culprit, 1);
  EXPECT_EQ(aborted.message,
            "the exchange failed on rank 1 (host node-b, pid 1001) in batch 7: reset by rank 2 (it "
            "failed on rank 3 too)");
}

TEST_F(CoordinatorTest, GivingUpEndsTheGroup) {
  start(2);
  coordinator->receive(1, GiveUp{"KeyboardInterrupt"}, now);
  const auto aborted = only<Aborted>();
  EXPECT_EQ(aborted.code, ErrorCode::kAborted);
  EXPECT_EQ(aborted.culprit, 1);
  EXPECT_FALSE(aborted.restartable);
  EXPECT_EQ(aborted.message, "rank 1 (host node-b, pid 1001) gave up: KeyboardInterrupt");
}

TEST_F(CoordinatorTest, AbortFromOutside) {
  start(2);
  coordinator->abort(
      Error(ErrorCode::kAborted, "a newer run replaced this one").make_restartable());
  EXPECT_TRUE(only<Aborted>().restartable);
  EXPECT_EQ(only<Aborted>().culprit, -1);
}

// ---- leaving ----

TEST_F(CoordinatorTest, LeavingEndsWithAFarewell) {
  start(3);
  define_all(1, "w", tensor({4}));
  announce_all(1, 1);
  coordinator->batch_started(1, now);
  coordinator->receive(2, Progress{1}, now);
  coordinator->receive(2, Goodbye{}, now);
  coordinator->receive(0, Progress{1}, now);
  EXPECT_TRUE(all<Farewell>().empty());
  coordinator->receive(1, Progress{1}, now);
  ASSERT_EQ(all<Farewell>().size(), 1u);
  EXPECT_EQ(sent.back().first, 2);
  coordinator->disconnected(2, "", now);
  EXPECT_FALSE(coordinator->aborted());
  pass(Seconds(30), {2});
  EXPECT_FALSE(coordinator->aborted());
  EXPECT_FALSE(coordinator->all_left());
  coordinator->receive(0, Goodbye{}, now);
  coordinator->receive(1, Goodbye{}, now);
  EXPECT_EQ(all<Farewell>().size(), 3u);
  EXPECT_TRUE(coordinator->all_left());
}

TEST_F(CoordinatorTest, CallsThatALeaverNeverMadeFail) {
  start(3);
  define_all(1, "w", tensor({4}));
  define_all(2, "v", tensor({4}));
  announce_all(1, 1);
  run_batch(1);
  announce(0, 1, 2);
  coordinator->receive(2, Goodbye{}, now);
  auto failed = only<Failed>();
  EXPECT_EQ(failed.code, ErrorCode::kPeerLost);
  EXPECT_EQ(failed.culprit, 2);
  EXPECT_EQ(failed.message,
            "rank 2 (host node-c, pid 1002) left before making pushpull call 2 of key 'w'");
  EXPECT_EQ(all<Farewell>().size(), 1u);
  announce(1, 1, 2);  // too late, told already
  EXPECT_EQ(all<Failed>().size(), 1u);
  announce(1, 2, 1);
  announce(0, 2, 1);
  ASSERT_EQ(all<Failed>().size(), 2u);
  EXPECT_EQ(all<Failed>()[1].message,
            "rank 2 (host node-c, pid 1002) left before making pushpull call 1 of key 'v'");
}

TEST_F(CoordinatorTest, ALeaverStaysForTheCallsItAnnounced) {
  start(2);
  define_all(1, "w", tensor({4}));
  announce(1, 1, 1);
  coordinator->receive(1, Goodbye{}, now);
  EXPECT_TRUE(all<Farewell>().empty());
  announce(0, 1, 1);
  EXPECT_EQ(all<Batch>().size(), 1u);
  EXPECT_TRUE(all<Farewell>().empty());
  run_batch(1);
  EXPECT_EQ(all<Farewell>().size(), 1u);
}

TEST_F(CoordinatorTest, ADisconnectWithBatchesRunningIsADeath) {
  start(2);
  define_all(1, "w", tensor({4}));
  announce_all(1, 1);
  coordinator->receive(1, Goodbye{}, now);
  coordinator->disconnected(1, "", now);
  EXPECT_EQ(only<Aborted>().culprit, 1);
}

TEST_F(CoordinatorTest, ADisconnectAfterGoodbyeIsFineWhenNothingRuns) {
  start(3);
  define_all(1, "w", tensor({4}));
  announce(1, 1, 1);
  coordinator->receive(1, Goodbye{}, now);
  coordinator->disconnected(1, "", now);
  EXPECT_FALSE(coordinator->aborted());
  EXPECT_EQ(only<Failed>().message,
            "rank 1 (host node-b, pid 1001) left while pushpull call 1 of key 'w' waited for other "
            "ranks");
  coordinator->receive(0, Goodbye{}, now);
  coordinator->receive(2, Goodbye{}, now);
  EXPECT_TRUE(coordinator->all_left());
}

TEST_F(CoordinatorTest, EvidenceAboutARankThatLeftIsNoFailure) {
  start(3);
  coordinator->receive(2, Goodbye{}, now);
  coordinator->disconnected(2, "", now);
  coordinator->receive(1, Evidence{.batch = 0, .suspect = 2, .message = "closed"}, now);
  pass(Seconds(3), {2});
  EXPECT_FALSE(coordinator->aborted());
}

// ---- nonsense from a peer that proved who it is ----

TEST_F(CoordinatorTest, NonsenseEndsTheGroupAndNamesTheRank) {
  const std::vector<std::pair<const char*, std::vector<FromRank>>> cases = {
      {"key number 9 was never defined", {Announce{{{9, 1, 0}}}}},
      {"its call has no number", {Announce{{{1, 0, 0}}}}},
      {"was announced twice", {Announce{{{1, 1, 0}, {1, 1, 0}}}}},
      {"too far ahead", {Announce{{{1, 1ull << 40, 0}}}}},
      {"defined twice", {Define{.id = 1, .key = "x", .signature = {}}}},
      {"out of range", {Define{.id = ~0u, .key = "x", .signature = {}}}},
      {"impossible shape", {Define{.id = 2, .key = "x", .signature = tensor({-4})}}},
      {"impossible shape",
       {Define{.id = 2, .key = "x", .signature = tensor({1ll << 62, 1ll << 62})}}},
      {"has root 3 in a group of 3",
       {Define{.id = 2, .kind = CallKind::kBroadcast, .key = "x", .signature = broadcast({1}, 3)}}},
      {"finished batch 1, the last one is 0", {Progress{1}}},
      {"withdrew a call that cannot be", {Withdraw{.key = "w", .call = 0, .reason = {}}}},
      {"which it had announced",
       {Announce{{{1, 1, 0}}}, Withdraw{.key = "w", .call = 1, .reason = {}}}},
      {"after its goodbye", {Goodbye{}, Announce{{{1, 1, 0}}}}},
  };
  for (const auto& [text, messages] : cases) {
    start(3);
    define_all(1, "w", tensor({4}));
    announce(0, 1, 1);
    if (std::string_view(text) == "after its goodbye") announce(1, 1, 1);
    sent.clear();
    for (const FromRank& m : messages) coordinator->receive(1, m, now);
    const auto aborted = only<Aborted>();
    EXPECT_EQ(aborted.culprit, 1);
    EXPECT_EQ(aborted.code, ErrorCode::kAborted);
    EXPECT_NE(aborted.message.find("rank 1 (host node-b, pid 1001) sent a malformed message: "),
              std::string::npos);
    EXPECT_NE(aborted.message.find(text), std::string::npos) << aborted.message;
  }
}

TEST_F(CoordinatorTest, SpeakingBeforeTheWelcomeIsNonsense) {
  options.size = 2;
  make();
  ASSERT_TRUE(coordinator->join(member(1), now));
  coordinator->receive(1, Heartbeat{}, now);
  EXPECT_FALSE(coordinator->aborted());
  coordinator->receive(1, Connected{}, now);
  EXPECT_TRUE(coordinator->aborted());
}

TEST_F(CoordinatorTest, UnknownRanksAreIgnored) {
  start(2);
  for (const int r : {-1, 2, 1000}) {
    coordinator->receive(r, GiveUp{"x"}, now);
    coordinator->disconnected(r, "", now);
  }
  coordinator->batch_started(99, now);
  EXPECT_TRUE(sent.empty());
}

// ---- for people ----

TEST_F(CoordinatorTest, DumpShowsWhatWaitsForWhom) {
  start(2);
  define_all(1, "w", tensor({4}));
  define_all(2, "v", tensor({4}));
  announce_all(1, 1);
  announce(0, 2, 1);
  pass(Seconds(2));
  const std::string text = coordinator->dump(now);
  EXPECT_NE(text.find("pushpull call 1 of key 'v' has waited 2 s for rank 1 (host node-b)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("batch 1: pushpull of 1 calls, from pushpull call 1 of key 'w'"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("rank 1 (host node-b, pid 1001): connected"), std::string::npos) << text;
}

TEST_F(CoordinatorTest, WhoAsksGetsTheDump) {
  start(2);
  define_all(1, "w", tensor({4}));
  announce(0, 1, 1);
  pass(Seconds(2));
  sent.clear();
  coordinator->receive(0, Explain{}, now);
  EXPECT_EQ(only<Explanation>().text, coordinator->dump(now));
}

}  // namespace
}  // namespace pushpull
