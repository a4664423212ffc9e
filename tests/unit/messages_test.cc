#include "core/control/messages.h"

#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "core/control/wire.h"

namespace pushpull {
namespace {

constexpr auto kMax32 = std::numeric_limits<uint32_t>::max();
constexpr auto kMax64 = std::numeric_limits<uint64_t>::max();

Signature signature(std::vector<int64_t> shape) {
  return {.dtype = DType::kBfloat16,
          .shape = std::move(shape),
          .root = 3,
          .reduce = {.prescale = 0.25, .postscale = -1e300}};
}

std::vector<FromRank> from_rank_samples() {
  return {
      Connected{},
      Define{
          .id = kMax32, .kind = CallKind::kBroadcast, .key = "conv0", .signature = signature({})},
      Define{.id = 0, .kind = CallKind::kBarrier, .key = "", .signature = signature({0, 3})},
      Define{.id = 1, .key = std::string("a\0b", 3), .signature = signature({1ll << 40, 7})},
      Announce{},
      Announce{{{1, 2, -3}, {kMax32, kMax64, std::numeric_limits<int32_t>::min()}}},
      Withdraw{.kind = CallKind::kPushPull, .key = "w", .call = kMax64, .reason = "bad input"},
      Progress{.finished = 1ull << 33},
      Evidence{.batch = 17, .suspect = -1, .message = "Connection reset by peer"},
      GiveUp{.reason = "interrupted"},
      Goodbye{},
      Heartbeat{},
      Explain{},
      LocalMemory{},
      LocalMemory{.shared = true},
  };
}

std::vector<ToRank> to_rank_samples() {
  const Member member{.rank = 2,
                      .host = "node-b",
                      .pid = 4711,
                      .boot_id = "b",
                      .network_namespace = kMax64,
                      .address = "[::1]:30000"};
  return {
      Welcome{.run = "abc", .generation = -1, .members = {member, member}},
      Ready{},
      Name{.id = 7, .kind = CallKind::kBroadcast, .key = "w"},
      Batch{.number = kMax64,
            .kind = CallKind::kPushPull,
            .entries = {{1, 2, 0, 1ull << 35, false}, {1, 2, 1ull << 35, 1ull << 36, true}}},
      Failed{.id = 1, .call = 3, .code = ErrorCode::kTimeout, .culprit = 3, .message = "late"},
      Warning{.message = "slow"},
      Aborted{.code = ErrorCode::kPeerLost, .culprit = 5, .restartable = true, .message = "died"},
      Farewell{},
      CoordinatorHeartbeat{},
      Explanation{.text = "batches: 3 cut\n  and so on\n"},
      Hosts{},
      Hosts{{0, 0, 2, std::numeric_limits<int32_t>::max()}},
      Name{.id = 8, .kind = CallKind::kJoin, .key = ""},
      StandIn{.id = 7, .call = kMax64, .signature = signature({64, 3})},
  };
}

template <class Message>
std::string encoded(const Message& message) {
  std::string bytes;
  encode(message, &bytes);
  return bytes;
}

auto decode(std::string_view bytes, FromRank*) { return decode_from_rank(bytes); }
auto decode(std::string_view bytes, ToRank*) { return decode_to_rank(bytes); }

template <class Message>
void expect_round_trips(const std::vector<Message>& samples) {
  std::string stream;
  for (const Message& message : samples) encode(message, &stream);
  std::string_view rest = stream;
  for (const Message& message : samples) {
    const auto decoded = decode(rest, static_cast<Message*>(nullptr));
    ASSERT_TRUE(decoded) << decoded.error().message();
    ASSERT_TRUE(*decoded);
    EXPECT_EQ((*decoded)->message.index(), message.index());
    EXPECT_EQ(encoded((*decoded)->message), encoded(message));
    rest.remove_prefix((*decoded)->bytes);
  }
  EXPECT_TRUE(rest.empty());
}

template <class Message>
void expect_all_prefixes_are_incomplete(const std::vector<Message>& samples) {
  for (const Message& message : samples) {
    const std::string bytes = encoded(message);
    for (size_t n = 0; n < bytes.size(); ++n) {
      const auto decoded =
          decode(std::string_view(bytes).substr(0, n), static_cast<Message*>(nullptr));
      ASSERT_TRUE(decoded) << decoded.error().message();
      EXPECT_FALSE(*decoded);
    }
  }
}

// Shortens every frame by its length field: the fields no longer fit.
template <class Message>
void expect_short_frames_are_malformed(const std::vector<Message>& samples) {
  for (const Message& message : samples) {
    std::string bytes = encoded(message);
    while (bytes.size() > 4) {
      bytes.pop_back();
      bytes[0] = static_cast<char>((bytes.size() - 4) & 0xFF);
      bytes[1] = static_cast<char>((bytes.size() - 4) >> 8);
      EXPECT_FALSE(decode(bytes, static_cast<Message*>(nullptr))) << message.index();
    }
  }
}

TEST(Messages, RoundTrip) {
  expect_round_trips(from_rank_samples());
  expect_round_trips(to_rank_samples());
}

TEST(Messages, FieldsSurvive) {
  const auto decoded = decode_from_rank(encoded(from_rank_samples()[1]));
  ASSERT_TRUE(decoded && *decoded);
  const auto& define = std::get<Define>((*decoded)->message);
  EXPECT_EQ(define.id, kMax32);
  EXPECT_EQ(define.kind, CallKind::kBroadcast);
  EXPECT_EQ(define.key, "conv0");
  EXPECT_EQ(define.signature, signature({}));

  const auto aborted = decode_to_rank(encoded(to_rank_samples()[6]));
  ASSERT_TRUE(aborted && *aborted);
  EXPECT_EQ(std::get<Aborted>((*aborted)->message).culprit, 5);
  EXPECT_TRUE(std::get<Aborted>((*aborted)->message).restartable);
}

TEST(Messages, WaitsForWholeFrames) {
  expect_all_prefixes_are_incomplete(from_rank_samples());
  expect_all_prefixes_are_incomplete(to_rank_samples());
}

TEST(Messages, RefusesFramesThatEndTooEarly) {
  expect_short_frames_are_malformed(from_rank_samples());
  expect_short_frames_are_malformed(to_rank_samples());
}

TEST(Messages, RefusesBytesAfterTheLastField) {
  std::string bytes = encoded(FromRank(Heartbeat{}));
  bytes += '\0';
  ++bytes[0];
  EXPECT_FALSE(decode_from_rank(bytes));
}

TEST(Messages, RefusesTheOtherDirection) {
  for (const auto& m : from_rank_samples()) EXPECT_FALSE(decode_to_rank(encoded(m)));
  for (const auto& m : to_rank_samples()) EXPECT_FALSE(decode_from_rank(encoded(m)));
}

TEST(Messages, RefusesHugeOrEmptyFramesAtOnce) {
  EXPECT_FALSE(decode_from_rank(std::string("\xff\xff\xff\xff", 4)));
  EXPECT_FALSE(decode_from_rank(std::string("\x01\x00\x00\x01", 4)));  // 16 MiB + 1
  EXPECT_FALSE(decode_from_rank(std::string(4, '\0')));
  const auto largest = decode_from_rank(std::string("\x00\x00\x00\x01", 4));
  ASSERT_TRUE(largest);
  EXPECT_FALSE(*largest);
}

TEST(Messages, RefusesAnotherGroup) {
  std::string bytes = encoded(FromRank(Heartbeat{}));
  bytes[5] = 1;
  const auto decoded = decode_from_rank(bytes);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().message(), "malformed control message: it is for an unknown group");
}

TEST(Messages, RefusesImpossibleShapes) {
  const std::vector<std::vector<int64_t>> shapes = {
      {-1}, {1ll << 32, 1ll << 32}, {0, 1ll << 62, 4}, std::vector<int64_t>(65, 1)};
  for (const auto& shape : shapes)
    EXPECT_FALSE(decode_from_rank(
        encoded(FromRank(Define{.id = 1, .key = "w", .signature = signature(shape)}))));
  EXPECT_TRUE(decode_from_rank(encoded(
      FromRank(Define{.id = 1, .key = "w", .signature = signature({1ll << 40, 1 << 10})}))));
}

// A list that claims a million items in a frame of few bytes must not cost a million items of
// memory.
TEST(Messages, RefusesListsLongerThanTheirFrame) {
  std::string bytes(4, '\0');
  wire::Writer writer(&bytes);
  writer.byte(3);
  writer.varint(0);
  writer.varint(1u << 20);
  bytes[0] = static_cast<char>(bytes.size() - 4);
  EXPECT_FALSE(decode_from_rank(bytes));
}

TEST(Messages, RefusesNumbersThatDoNotFit) {
  for (const std::string tail : {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",  // beyond 64 bits
                                 "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"}) {
    std::string bytes("\0\0\0\0\x05\0", 6);  // Progress
    bytes += tail;
    bytes[0] = static_cast<char>(bytes.size() - 4);
    EXPECT_FALSE(decode_from_rank(bytes));
  }
  std::string name("\0\0\0\0\x43\0\x80\x80\x80\x80\x10\0\0", 13);  // Name with id 2^32
  name[0] = 9;
  EXPECT_FALSE(decode_to_rank(name));
}

TEST(Messages, SplitsLargeAnnouncements) {
  Announce large;
  for (uint32_t i = 0; i < 200'000; ++i) large.calls.push_back({i, kMax64 - i, -1});
  const std::string stream = encoded(FromRank(large));
  std::string_view rest = stream;
  std::vector<Announcement> calls;
  int frames = 0;
  while (!rest.empty()) {
    auto decoded = decode_from_rank(rest);
    ASSERT_TRUE(decoded && *decoded);
    const auto& part = std::get<Announce>((*decoded)->message).calls;
    calls.insert(calls.end(), part.begin(), part.end());
    rest.remove_prefix((*decoded)->bytes);
    ++frames;
  }
  EXPECT_EQ(frames, 4);
  ASSERT_EQ(calls.size(), large.calls.size());
  for (uint32_t i = 0; i < calls.size(); ++i) {
    ASSERT_EQ(calls[i].id, i);
    ASSERT_EQ(calls[i].call, kMax64 - i);
  }
}

TEST(Messages, CutsLongSentencesBetweenCharacters) {
  std::string reason = "x";
  while (reason.size() < wire::kMaxTextBytes + 10) reason += "\xc3\xa4";
  const auto decoded = decode_from_rank(encoded(FromRank(GiveUp{.reason = reason})));
  ASSERT_TRUE(decoded && *decoded);
  const std::string& cut = std::get<GiveUp>((*decoded)->message).reason;
  EXPECT_EQ(cut, reason.substr(0, cut.size()));
  EXPECT_EQ(cut.size(), wire::kMaxTextBytes - 1);
}

TEST(Messages, AnnouncementsAreSmall) {
  Announce announce;
  for (uint32_t i = 0; i < 100; ++i) announce.calls.push_back({i, 100, -static_cast<int>(i % 64)});
  EXPECT_LE(encoded(FromRank(announce)).size(), 4u + 1 + 1 + 1 + 300);
}

TEST(Messages, MembersRoundTrip) {
  const Member member{.rank = 1023,
                      .host = "node-b.cluster.local",
                      .pid = 1ll << 40,
                      .boot_id = "0a1b",
                      .network_namespace = 4026531840,
                      .address = "10.0.0.1:30001"};
  const Joining joining{member, "PUSHPULL_SIZE=2\n"};
  const auto decoded = decode_joining(encode_joining(joining));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->settings, joining.settings);
  EXPECT_EQ(decoded->member.rank, 1023);
  EXPECT_EQ(decoded->member.host, member.host);
  EXPECT_EQ(decoded->member.pid, member.pid);
  EXPECT_EQ(decoded->member.boot_id, member.boot_id);
  EXPECT_EQ(decoded->member.network_namespace, member.network_namespace);
  EXPECT_EQ(decoded->member.address, member.address);
  EXPECT_FALSE(decode_joining(encode_joining(joining) + "x"));
  EXPECT_FALSE(decode_joining(encode_joining(joining).substr(0, 10)));
  EXPECT_FALSE(decode_joining(""));
}

// Whatever one flipped byte makes of a frame, decoding ends in a message, a wait, or an error, and
// what is a message encodes again.
TEST(Messages, SurvivesFlippedBytes) {
  std::mt19937 random(1);
  for (const FromRank& message : from_rank_samples()) {
    const std::string original = encoded(message);
    for (int i = 0; i < 2000; ++i) {
      std::string bytes = original;
      bytes[random() % bytes.size()] = static_cast<char>(random());
      const auto decoded = decode_from_rank(bytes);
      if (decoded && *decoded) {
        EXPECT_LE((*decoded)->bytes, bytes.size());
        EXPECT_FALSE(encoded((*decoded)->message).empty());
      }
    }
  }
}

TEST(Signature, DescribesWhatMatters) {
  Signature s{.dtype = DType::kFloat32, .shape = {64, 3, 7, 7}, .root = -1, .reduce = {}};
  EXPECT_EQ(s.describe(CallKind::kPushPull), "float32 (64, 3, 7, 7)");
  s.shape.clear();
  EXPECT_EQ(s.describe(CallKind::kPushPull), "float32 ()");
  s.reduce.prescale = 0.125;
  EXPECT_EQ(s.describe(CallKind::kPushPull), "float32 (), prescale 0.125");
  s.root = 2;
  EXPECT_EQ(s.describe(CallKind::kBroadcast), "float32 () from root 2");
}

}  // namespace
}  // namespace pushpull
