#include "core/net/mesh.h"

#include <atomic>
#include <future>

#include "tests/unit/net_helpers.h"

namespace pushpull {
namespace {

using namespace pushpull::testing;

// One rank: an acceptor and the mesh that it feeds.
struct Rank {
  TcpMesh mesh;
  std::unique_ptr<Acceptor> acceptor;

  explicit Rank(const std::string& secret = "secret") : mesh(secret) {
    Acceptor::Options options;
    options.secret = secret;
    options.judge = [this](const Hello& hello) { return mesh.judge(hello); };
    options.accepted = [this](const Hello& hello, Socket socket) {
      mesh.accepted(hello, std::move(socket));
    };
    acceptor = std::move(*Acceptor::listen(std::move(options)));
  }
};

std::vector<Member> members_of(const std::vector<std::unique_ptr<Rank>>& ranks) {
  std::vector<Member> members;
  for (const auto& rank : ranks) {
    Member member;
    member.rank = static_cast<int>(members.size());
    member.host = "node-" + std::to_string(member.rank);
    member.pid = 100 + member.rank;
    member.address = rank->acceptor->endpoint().to_string();
    members.push_back(member);
  }
  return members;
}

std::vector<std::unique_ptr<Rank>> make_ranks(int size, const std::string& job = "job") {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<Rank>());
  const auto members = members_of(ranks);
  for (int r = 0; r < size; ++r) {
    ranks[static_cast<size_t>(r)]->mesh.set_group(job, "run", 0, r, members);
  }
  return ranks;
}

using Sockets = Result<std::vector<Socket>>;

std::vector<Sockets> connect_all(std::vector<std::unique_ptr<Rank>>& ranks,
                                 Duration limit = seconds(60)) {
  std::vector<std::future<Sockets>> running;
  for (auto& rank : ranks) {
    running.push_back(std::async(
        std::launch::async, [&, limit] { return rank->mesh.connect(deadline_in(limit)); }));
  }
  std::vector<Sockets> results;
  for (auto& one : running) results.push_back(one.get());
  return results;
}

// Every rank tells every other who it is, and checks what it hears.
void expect_full_mesh(const std::vector<Sockets>& all) {
  const Deadline soon = deadline_in(seconds(20));
  const int size = static_cast<int>(all.size());
  for (int r = 0; r < size; ++r) {
    const Sockets& mine = all[static_cast<size_t>(r)];
    ASSERT_TRUE(mine) << mine.error().message();
    ASSERT_EQ(mine->size(), all.size());
    for (int to = 0; to < size; ++to) {
      const Socket& socket = (*mine)[static_cast<size_t>(to)];
      EXPECT_EQ(socket.valid(), to != r);
      if (to == r) continue;
      const char word[2] = {static_cast<char>(r), static_cast<char>(to)};
      ASSERT_TRUE(send_all(socket, std::string_view(word, 2), soon));
    }
  }
  for (int r = 0; r < size; ++r) {
    for (int from = 0; from < size; ++from) {
      if (from == r) continue;
      char word[2] = {};
      const Socket& socket = (*all[static_cast<size_t>(r)])[static_cast<size_t>(from)];
      const auto received = recv_all(socket, word, 2, soon);
      ASSERT_TRUE(received) << received.error().message();
      EXPECT_EQ(word[0], from);
      EXPECT_EQ(word[1], r);
    }
  }
}

TEST(TcpMesh, ConnectsEverybodyWithEverybody) {
  for (const int size : {1, 2, 3, 4, 8, 16}) {
    auto ranks = make_ranks(size);
    expect_full_mesh(connect_all(ranks));
  }
}

TEST(TcpMesh, TwoMeshesAtOnceDoNotMix) {
  auto first = make_ranks(4, "first");
  auto second = make_ranks(4, "second");
  auto other = std::async(std::launch::async, [&] { return connect_all(second); });
  expect_full_mesh(connect_all(first));
  expect_full_mesh(other.get());
}

TEST(TcpMesh, ConnectionsMayArriveBeforeTheGroupIsKnown) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < 3; ++r) ranks.push_back(std::make_unique<Rank>());
  const auto members = members_of(ranks);
  auto later = [&](int r) {
    std::this_thread::sleep_for(milliseconds(200 * (3 - r)));
    ranks[static_cast<size_t>(r)]->mesh.set_group("job", "run", 0, r, members);
    return ranks[static_cast<size_t>(r)]->mesh.connect(deadline_in(seconds(30)));
  };
  std::vector<std::future<Sockets>> running;
  for (int r = 0; r < 3; ++r) running.push_back(std::async(std::launch::async, later, r));
  std::vector<Sockets> all;
  for (auto& one : running) all.push_back(one.get());
  expect_full_mesh(all);
}

TEST(TcpMesh, StrangersThatArrivedBeforeTheGroupWasKnownAreDropped) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < 2; ++r) ranks.push_back(std::make_unique<Rank>());
  Hello stranger = hello_of(1);
  stranger.run = "another run";
  const auto early =
      dial(ranks[0]->acceptor->endpoint(), "secret", stranger, deadline_in(seconds(10)));
  ASSERT_TRUE(early);
  const auto members = members_of(ranks);
  for (int r = 0; r < 2; ++r) {
    ranks[static_cast<size_t>(r)]->mesh.set_group("job", "run", 0, r, members);
  }
  char byte = 0;
  EXPECT_EQ(recv_all(*early, &byte, 1, deadline_in(seconds(10))).error().code(),
            ErrorCode::kPeerLost);
  expect_full_mesh(connect_all(ranks));
}

TEST(TcpMesh, SomeOfTheRanksConnectAmongThemselves) {
  auto ranks = make_ranks(5);
  const std::vector<int> parts[] = {{0, 3, 4}, {1, 2}};
  std::vector<std::future<Sockets>> running[2];
  for (size_t p = 0; p < 2; ++p)
    for (const int r : parts[p])
      running[p].push_back(std::async(std::launch::async, [&, p, r] {
        return ranks[static_cast<size_t>(r)]->mesh.among(parts[p])->connect(
            deadline_in(seconds(60)));
      }));
  for (auto& part : running) {
    std::vector<Sockets> all;
    for (auto& one : part) all.push_back(one.get());
    expect_full_mesh(all);
  }
}

TEST(TcpMesh, ConnectingWithoutAGroupIsAMistake) {
  TcpMesh mesh("secret");
  EXPECT_EQ(mesh.connect(deadline_in(seconds(1))).error().code(), ErrorCode::kInvalidArgument);
  auto ranks = make_ranks(1);
  EXPECT_TRUE(ranks[0]->mesh.connect(never()));
}

TEST(TcpMesh, TimeoutsNameTheMissing) {
  auto ranks = make_ranks(4);
  ranks[1]->acceptor->close();
  auto one = std::async(std::launch::async,
                        [&] { return ranks[2]->mesh.connect(deadline_in(milliseconds(700))); });
  auto zero = std::async(std::launch::async,
                         [&] { return ranks[0]->mesh.connect(deadline_in(milliseconds(700))); });
  const Sockets two = one.get();
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(two.error().message(),
            "rank 2 could not connect to all others within 0.7 s; missing rank 1 (host "
            "node-1, pid 101): connection refused, rank 3 (host node-3, pid 103): it did not call");
  EXPECT_EQ(two.error().rank(), 1);
  EXPECT_EQ(two.error().host(), "node-1");
  const Sockets none = zero.get();
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message().find("rank 1 (host node-1, pid 101): it did not call"),
            std::string::npos);
  EXPECT_EQ(none.error().message().find("rank 2"), std::string::npos);
}

TEST(TcpMesh, CancelEndsEveryConnectSoon) {
  auto ranks = make_ranks(3);
  const auto began = Clock::now();
  auto waiting = std::async(std::launch::async,
                            [&] { return ranks[1]->mesh.connect(deadline_in(seconds(60))); });
  std::this_thread::sleep_for(milliseconds(100));
  ranks[1]->mesh.cancel(Error(ErrorCode::kPeerLost, "rank 2 died"));
  const Sockets sockets = waiting.get();
  ASSERT_FALSE(sockets);
  EXPECT_EQ(sockets.error().message(), "rank 2 died");
  EXPECT_EQ(ranks[1]->mesh.connect(never()).error().message(), "rank 2 died");
  EXPECT_LT(Clock::now() - began, seconds(10));
}

TEST(TcpMesh, JudgesWhoBelongs) {
  auto ranks = make_ranks(3);
  TcpMesh& mesh = ranks[1]->mesh;
  EXPECT_TRUE(mesh.judge(hello_of(2)));
  const auto code = [&](const Hello& hello) { return mesh.judge(hello).error().code(); };
  EXPECT_EQ(code(hello_of(0)), ErrorCode::kInvalidArgument) << "the higher rank dials";
  EXPECT_EQ(code(hello_of(1)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(hello_of(3)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(hello_of(-1)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(hello_of(2, Purpose::kStore)), ErrorCode::kInvalidArgument);
  Hello other = hello_of(2);
  other.job = "other";
  EXPECT_EQ(code(other), ErrorCode::kInvalidArgument);
  EXPECT_EQ(mesh.judge(other).error().message(),
            "rank 2 of job 'other' called rank 1 of job 'job'");
  Hello stale = hello_of(2);
  stale.run = "earlier";
  EXPECT_EQ(code(stale), ErrorCode::kAborted);
  EXPECT_TRUE(mesh.judge(stale).error().restartable());
  Hello unborn = hello_of(2);
  unborn.generation = -1;
  EXPECT_EQ(code(unborn), ErrorCode::kInvalidArgument);
  expect_full_mesh(connect_all(ranks));
  EXPECT_EQ(code(hello_of(2)), ErrorCode::kInvalidArgument) << "connected already";
}

TEST(TcpMesh, TheNewestConnectionOfARankCounts) {
  auto ranks = make_ranks(2);
  const Endpoint to = ranks[0]->acceptor->endpoint();
  // One that died, one that never confirms, one that gave up: then the real one.
  auto dead = dial(to, "secret", hello_of(1), deadline_in(seconds(10)));
  ASSERT_TRUE(dead);
  dead->close();
  auto waiting = std::async(std::launch::async,
                            [&] { return ranks[0]->mesh.connect(deadline_in(seconds(60))); });
  const auto idle = dial(to, "secret", hello_of(1), deadline_in(seconds(10)));
  ASSERT_TRUE(idle);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(waiting.wait_for(seconds(0)), std::future_status::timeout);
  std::vector<Sockets> both;
  auto real = ranks[1]->mesh.connect(deadline_in(seconds(60)));
  both.push_back(waiting.get());
  both.push_back(std::move(real));
  expect_full_mesh(both);
  char byte = 0;
  EXPECT_EQ(recv_all(*idle, &byte, 1, deadline_in(seconds(10))).error().code(),
            ErrorCode::kPeerLost);
}

TEST(TcpMesh, ARefusalNamesTheRankThatRefused) {
  auto ranks = make_ranks(2);
  const auto members = members_of(ranks);
  ranks[1]->mesh.set_group("job", "an older run", 0, 1, members);
  const Sockets refused = ranks[1]->mesh.connect(deadline_in(seconds(60)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kAborted);
  EXPECT_TRUE(refused.error().restartable());
}

TEST(TcpMesh, ANewGenerationConnectsAnew) {
  auto ranks = make_ranks(3);
  expect_full_mesh(connect_all(ranks));
  const auto members = members_of(ranks);
  // The dialers are a generation ahead for a while.
  for (const int r : {2, 1})
    ranks[static_cast<size_t>(r)]->mesh.set_group("job", "run", 1, r, members);
  auto late = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(milliseconds(200));
    ranks[0]->mesh.set_group("job", "run", 1, 0, members);
  });
  std::vector<std::future<Sockets>> running(3);
  for (const size_t r : {1u, 2u}) {
    running[r] = std::async(std::launch::async,
                            [&, r] { return ranks[r]->mesh.connect(deadline_in(seconds(30))); });
  }
  late.get();
  running[0] = std::async(std::launch::async,
                          [&] { return ranks[0]->mesh.connect(deadline_in(seconds(30))); });
  std::vector<Sockets> all;
  for (auto& one : running) all.push_back(one.get());
  expect_full_mesh(all);
  EXPECT_EQ(ranks[0]->mesh.judge(hello_of(1)).error().code(), ErrorCode::kAborted);
}

// One hostile visit of each kind in turn.
void annoy(uint16_t port, int kind) {
  const Socket socket = raw_connect(port);
  if (!socket.valid()) return;
  switch (kind % 5) {
    case 0:
      break;  // a port scanner
    case 1:
      raw_send(socket, "GET / HTTP/1.1\r\n\r\n");
      break;
    case 2:
      raw_send(socket, std::string("ppul\x01\0\xff\xff", 8));
      break;
    case 3:
      raw_send(socket, std::string("ppul\x01\0\x40\0", 8));
      break;  // half a hello
    case 4: {
      ClientHandshake client("a wrong secret", hello_of(1));
      char challenge[38];
      if (::recv(socket.fd(), challenge, 38, MSG_WAITALL) != 38) return;
      (void)client.feed(std::string_view(challenge, 38));
      raw_send(socket, client.output());
    }
  }
}

TEST(TcpMesh, TwoThousandHostileConnectionsDoNotDisturb) {
  constexpr int kHostile = 2000;
  auto ranks = make_ranks(4);
  std::atomic<bool> others_done = false;
  std::thread hostile([&] {
    for (int i = 0; i < kHostile; ++i)
      annoy(ranks[static_cast<size_t>(i % 4)]->acceptor->endpoint().port, i / 4);
    others_done = true;
  });
  const auto members = members_of(ranks);
  int generation = 0;
  do {
    for (size_t r = 0; r < ranks.size(); ++r)
      ranks[r]->mesh.set_group("job", "run", generation, static_cast<int>(r), members);
    expect_full_mesh(connect_all(ranks));
  } while (!others_done && ++generation < 200);
  hostile.join();
  uint64_t refused = 0;
  EXPECT_TRUE(eventually([&] {
    refused = 0;
    for (const auto& rank : ranks) refused += rank->acceptor->refused();
    return refused >= kHostile;
  }));
  EXPECT_EQ(refused, static_cast<uint64_t>(kHostile));
}

TEST(TcpMesh, SixteenRanksStartingAtRandomMoments) {
  auto ranks = make_ranks(16);
  std::vector<std::future<Sockets>> running;
  unsigned state = 1;
  for (size_t r = 0; r < ranks.size(); ++r) {
    state = state * 1103515245 + 12345;
    const auto delay = milliseconds(state / 65536 % 300);
    running.push_back(std::async(std::launch::async, [&ranks, r, delay] {
      std::this_thread::sleep_for(delay);
      return ranks[r]->mesh.connect(deadline_in(seconds(60)));
    }));
  }
  std::vector<Sockets> all;
  for (auto& one : running) all.push_back(one.get());
  expect_full_mesh(all);
}

}  // namespace
}  // namespace pushpull
