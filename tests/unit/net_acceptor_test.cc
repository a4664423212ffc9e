#include "core/net/acceptor.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <future>

#include "tests/unit/net_helpers.h"

namespace pushpull {
namespace {

using namespace pushpull::testing;

// Collects what an acceptor hands out.
struct Guests {
  std::mutex mutex;
  std::vector<std::pair<Hello, Socket>> list;
  size_t count() {
    const std::lock_guard lock(mutex);
    return list.size();
  }
  Acceptor::Accepted collector() {
    return [this](Hello hello, Socket socket) {
      const std::lock_guard lock(mutex);
      list.emplace_back(std::move(hello), std::move(socket));
    };
  }
};

struct House {
  Guests guests;
  std::shared_ptr<RecordingLogger> log = std::make_shared<RecordingLogger>();
  std::unique_ptr<Acceptor> acceptor;

  explicit House(ServerHandshake::Judge judge = {}, std::string address = "127.0.0.1") {
    Acceptor::Options options;
    options.address = std::move(address);
    options.secret = "secret";
    options.judge = std::move(judge);
    options.accepted = guests.collector();
    options.logger = log;
    auto listening = Acceptor::listen(std::move(options));
    EXPECT_TRUE(listening) << listening.error().message();
    acceptor = std::move(*listening);
  }
  uint16_t port() const { return acceptor->endpoint().port; }
  Result<Socket> knock(const Hello& hello, Duration limit = seconds(20),
                       const std::string& secret = "secret") {
    return dial(acceptor->endpoint(), secret, hello, deadline_in(limit));
  }
};

void expect_good_manners(const Socket& socket) {
  EXPECT_TRUE(fcntl(socket.fd(), F_GETFL) & O_NONBLOCK);
  EXPECT_TRUE(fcntl(socket.fd(), F_GETFD) & FD_CLOEXEC);
  int on = 0;
  socklen_t size = sizeof(on);
  getsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, &size);
  EXPECT_NE(on, 0);
}

TEST(Acceptor, HandsOutAuthenticatedConnections) {
  for (const std::string address : {"127.0.0.1", "::1"}) {
    House house({}, address);
    EXPECT_EQ(house.acceptor->endpoint().host, address);
    auto dialed = house.knock(hello_of(3));
    ASSERT_TRUE(dialed) << dialed.error().message();
    ASSERT_TRUE(eventually([&] { return house.guests.count() == 1; }));
    const auto& [hello, socket] = house.guests.list.front();
    EXPECT_EQ(hello.rank, 3);
    expect_good_manners(*dialed);
    expect_good_manners(socket);
    const Deadline soon = deadline_in(seconds(5));
    ASSERT_TRUE(send_all(*dialed, "over and out", soon));
    char buffer[12];
    ASSERT_TRUE(recv_all(socket, buffer, sizeof(buffer), soon));
    EXPECT_EQ(std::string_view(buffer, sizeof(buffer)), "over and out");
    dialed->close();
    EXPECT_EQ(recv_all(socket, buffer, 1, soon).error().code(), ErrorCode::kPeerLost);
  }
}

TEST(Acceptor, TheAnyAddressTakesBothFamilies) {
  House house({}, "::");
  for (const std::string host : {"127.0.0.1", "::1"}) {
    EXPECT_TRUE(dial({host, house.port()}, "secret", hello_of(1), deadline_in(seconds(10))))
        << host;
  }
}

TEST(Acceptor, TakesTheFirstFreePortOfARange) {
  House first;
  Acceptor::Options options;
  options.ports = {first.port(), static_cast<uint16_t>(first.port() + 20)};
  auto second = Acceptor::listen(options);
  ASSERT_TRUE(second) << second.error().message();
  EXPECT_GT((*second)->endpoint().port, first.port());
  options.ports = {first.port(), first.port()};
  auto third = Acceptor::listen(options);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(third.error().message(), "cannot listen on " + first.acceptor->endpoint().to_string() +
                                         ": address already in use");
  options.address = "203.0.113.1";
  auto foreign = Acceptor::listen(options);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().code(), ErrorCode::kInvalidArgument);
  options.address = "localhost";
  EXPECT_FALSE(Acceptor::listen(options)) << "names are not resolved here";
}

TEST(Acceptor, ManyAtOnceFindDifferentPortsOfARange) {
  House probe;
  const uint16_t first = probe.port();
  std::vector<std::future<Result<std::unique_ptr<Acceptor>>>> starting;
  for (int i = 0; i < 8; ++i) {
    starting.push_back(std::async(std::launch::async, [&] {
      Acceptor::Options options;
      options.ports = {first, static_cast<uint16_t>(first + 60)};
      return Acceptor::listen(options);
    }));
  }
  std::vector<std::unique_ptr<Acceptor>> running;
  for (auto& start : starting) {
    auto acceptor = start.get();
    ASSERT_TRUE(acceptor) << acceptor.error().message();
    for (const auto& other : running) {
      EXPECT_NE(other->endpoint().port, (*acceptor)->endpoint().port);
    }
    running.push_back(std::move(*acceptor));
  }
}

TEST(Acceptor, RefusalsReachTheDialerAtOnce) {
  House house([](const Hello& hello) -> Result<void> {
    if (hello.job == "job") return {};
    Error error(ErrorCode::kAborted, "this is not job '" + hello.job + "'");
    return fail(error.at_rank(hello.rank, "node-c").make_restartable());
  });
  Hello other = hello_of(2);
  other.job = "other";
  const auto began = Clock::now();
  const auto refused = house.knock(other, seconds(60));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kAborted);
  EXPECT_EQ(refused.error().message(), "this is not job 'other'");
  EXPECT_EQ(refused.error().host(), "node-c");
  EXPECT_TRUE(refused.error().restartable());
  const auto stranger = house.knock(hello_of(2), seconds(60), "another secret");
  ASSERT_FALSE(stranger);
  EXPECT_EQ(stranger.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(stranger.error().message().find("PUSHPULL_SECRET"), std::string::npos);
  EXPECT_NE(stranger.error().message().find(house.acceptor->endpoint().to_string()),
            std::string::npos);
  EXPECT_LT(Clock::now() - began, seconds(30));
  EXPECT_TRUE(eventually([&] { return house.acceptor->refused() == 2; }));
  EXPECT_EQ(house.guests.count(), 0u);
  EXPECT_TRUE(house.knock(hello_of(2)));
}

TEST(Acceptor, GarbageIsClosedAtOnce) {
  House house;
  const std::string challenge_head = "ppul";
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.0\r\n\r\n"), std::string(100'000, '\xff'),
        std::string("ppul\x01\0\xff\xff", 8) + std::string(70'000, 'x'), std::string("\0", 1)}) {
    const Socket client = raw_connect(house.port());
    ASSERT_TRUE(client.valid());
    raw_send(client, bytes);
    const std::string answer = raw_read_all(client);
    EXPECT_TRUE(answer.empty() || answer.starts_with(challenge_head));
    EXPECT_LE(answer.size(), 38u);
  }
  EXPECT_TRUE(eventually([&] { return house.acceptor->refused() == 4; }));
  EXPECT_TRUE(house.knock(hello_of(1)));
}

TEST(Acceptor, PortScannersAndReplaysAreShruggedOff) {
  House house;
  for (int i = 0; i < 50; ++i) raw_connect(house.port()).close();
  // Records a good hello by standing in the middle, then plays it again.
  const Socket server = raw_connect(house.port());
  std::string challenge(38, '\0');
  ASSERT_EQ(::recv(server.fd(), challenge.data(), 38, MSG_WAITALL), 38);
  ClientHandshake client("secret", hello_of(1));
  ASSERT_TRUE(client.feed(challenge));
  const std::string recorded = client.output();
  raw_send(server, recorded);
  ASSERT_TRUE(eventually([&] { return house.guests.count() == 1; }));
  const Socket replay = raw_connect(house.port());
  raw_send(replay, recorded);
  raw_read_all(replay);
  EXPECT_TRUE(eventually([&] { return house.acceptor->refused() == 51; }))
      << house.acceptor->refused();
  EXPECT_EQ(house.guests.count(), 1u);
}

TEST(Acceptor, SlowAndHalfOpenConnectionsEndAfterFiveSeconds) {
  House house;
  const Socket silent = raw_connect(house.port());
  const Socket slow = raw_connect(house.port());
  const auto began = Clock::now();
  std::thread loris([&] {
    for (const char c : std::string("ppul\x01\0\x00\x08", 8) + std::string(100, 'x')) {
      raw_send(slow, std::string_view(&c, 1));
      std::this_thread::sleep_for(milliseconds(100));
      if (Clock::now() - began > seconds(8)) break;
    }
  });
  EXPECT_TRUE(house.knock(hello_of(1))) << "nobody waits for the slow";
  EXPECT_EQ(raw_read_all(silent).size(), 38u);
  EXPECT_EQ(raw_read_all(slow).size(), 38u);
  EXPECT_LT(Clock::now() - began, seconds(9));
  EXPECT_TRUE(eventually([&] { return house.acceptor->refused() == 2; }));
  loris.join();
}

TEST(Acceptor, UnfinishedConnectionsMakeRoomForNewOnes) {
  House house;
  std::vector<Socket> silent;
  for (int i = 0; i < 1100; ++i) {
    silent.push_back(raw_connect(house.port()));
    if (!silent.back().valid()) break;  // this process may have few descriptors
  }
  EXPECT_TRUE(house.knock(hello_of(1)));
  silent.erase(silent.begin() + 100, silent.end());
  EXPECT_TRUE(house.knock(hello_of(1)));
}

TEST(Acceptor, LogsOnceASecondAndCounts) {
  House house;
  const auto began = Clock::now();
  for (int i = 0; i < 300; ++i) {
    const Socket client = raw_connect(house.port());
    raw_send(client, "\n");
    raw_read_all(client);
  }
  EXPECT_TRUE(eventually([&] { return house.acceptor->refused() == 300; }));
  EXPECT_TRUE(eventually([&] { return house.log->lines().size() >= 2; }));
  const auto lines = house.log->lines();
  const auto lasted = std::chrono::duration_cast<seconds>(Clock::now() - began).count();
  EXPECT_LE(lines.size(), static_cast<size_t>(lasted) + 2);
  EXPECT_NE(lines[0].find("refused a connection from 127.0.0.1:"), std::string::npos);
  EXPECT_NE(lines[0].find("not a pushpull hello"), std::string::npos);
  EXPECT_NE(lines[1].find("more within the last second"), std::string::npos);
}

TEST(Acceptor, RunningOutOfDescriptorsIsSurvived) {
  House house;
  EXPECT_TRUE(house.knock(hello_of(1)));
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const Socket client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  rlimit tight = before;
  tight.rlim_cur = static_cast<rlim_t>(client.fd() + 1);
  setrlimit(RLIMIT_NOFILE, &tight);
  std::vector<Socket> fill;
  while (true) {
    Socket more(::dup(client.fd()));
    if (!more.valid()) break;
    fill.push_back(std::move(more));
  }
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(house.port());
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(client.fd(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  EXPECT_TRUE(eventually([&] { return !house.log->lines().empty(); }));
  setrlimit(RLIMIT_NOFILE, &before);
  fill.clear();
  EXPECT_TRUE(house.knock(hello_of(2)));
  ASSERT_FALSE(house.log->lines().empty());
  EXPECT_NE(house.log->lines()[0].find("too many open files"), std::string::npos);
}

TEST(Acceptor, ClosingFreesThePortAndKeepsWhatWasHandedOut) {
  House house;
  auto dialed = house.knock(hello_of(1));
  ASSERT_TRUE(dialed);
  ASSERT_TRUE(eventually([&] { return house.guests.count() == 1; }));
  const Socket unfinished = raw_connect(house.port());
  house.acceptor->close();
  house.acceptor->close();
  raw_read_all(unfinished);
  uint16_t port = house.port();
  EXPECT_TRUE(raw_listen(&port).valid());
  ASSERT_TRUE(send_all(*dialed, "x", deadline_in(seconds(5))));
  char byte = 0;
  EXPECT_TRUE(recv_all(house.guests.list[0].second, &byte, 1, deadline_in(seconds(5))));
}

TEST(Acceptor, MayBeClosedFromItsOwnCallback) {
  std::promise<void> closed;
  std::unique_ptr<Acceptor> acceptor;
  Acceptor::Options options;
  options.secret = "secret";
  options.accepted = [&](const Hello&, Socket) {
    acceptor->close();
    closed.set_value();
  };
  acceptor = std::move(*Acceptor::listen(std::move(options)));
  auto dialed = dial(acceptor->endpoint(), "secret", hello_of(1), deadline_in(seconds(10)));
  EXPECT_TRUE(dialed);
  EXPECT_EQ(closed.get_future().wait_for(seconds(10)), std::future_status::ready);
}

TEST(Acceptor, AForkedChildGivesThePortUp) {
  auto house = std::make_unique<House>();
  const uint16_t port = house->port();
  const Socket unfinished = raw_connect(port);
  char first = 0;
  ASSERT_EQ(::recv(unfinished.fd(), &first, 1, 0), 1);
  int ready[2];
  int end[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(end), 0);
  const pid_t child = fork();
  if (child == 0) {
    ::close(end[1]);
    char byte = 'r';
    (void)!write(ready[1], &byte, 1);
    (void)!read(end[0], &byte, 1);
    _exit(0);
  }
  char byte = 0;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(house->knock(hello_of(1))) << "the parent's listener is not disturbed";
  house.reset();
  uint16_t again = port;
  EXPECT_TRUE(raw_listen(&again).valid()) << "the child still holds the port";
  EXPECT_EQ(raw_read_all(unfinished).size(), 37u) << "the child still holds a connection";
  for (const int fd : {ready[0], ready[1], end[0], end[1]}) ::close(fd);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace pushpull
