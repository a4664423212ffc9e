// What the TCP store does beyond the suite that every store passes (tests/stores).
#include "backends/rendezvous/tcp/tcp_store.h"

#include <future>

#include "backends/rendezvous/tcp/key_table.h"
#include "backends/rendezvous/tcp/server.h"
#include "tests/unit/net_helpers.h"

namespace pushpull::tcp_store {
namespace {

using namespace pushpull::testing;

Deadline soon() { return deadline_in(seconds(20)); }

StoreOptions options_for(const std::string& url, bool host_it, const std::string& secret = "secret",
                         const std::string& job = "job") {
  StoreOptions options;
  options.url = url;
  options.job = job;
  options.secret = secret;
  options.host_it = host_it;
  return options;
}

Result<std::unique_ptr<Store>> open(const StoreOptions& options, Deadline deadline = soon()) {
  return TcpStoreFactory().open(options, deadline);
}

std::unique_ptr<Store> host(const std::string& secret = "secret", const std::string& job = "job") {
  auto store = open(options_for("tcp://127.0.0.1:0", true, secret, job));
  EXPECT_TRUE(store) << store.error().message();
  return std::move(*store);
}

uint16_t port_of(const Store& store) {
  const std::string where = store.description();
  return static_cast<uint16_t>(std::stoi(where.substr(where.rfind(':') + 1)));
}

// ---- the wire ----

TEST(TcpStoreProtocol, RoundTrips) {
  const Request request{Operation::kAdd, 7, std::string("k\0y", 3),
                        std::string(kMaxValueBytes, 'v'), -5};
  const std::string frame = encode(request);
  ASSERT_EQ(frame_length(frame), frame.size() - kFrameHeadBytes);
  const auto decoded = decode_request(std::string_view(frame).substr(kFrameHeadBytes));
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->operation, request.operation);
  EXPECT_EQ(decoded->number, 7u);
  EXPECT_EQ(decoded->key, request.key);
  EXPECT_EQ(decoded->value, request.value);
  EXPECT_EQ(decoded->delta, -5);

  Reply reply;
  reply.value = "";
  reply.sum = 3;
  const std::string answer = encode(reply);
  const auto back = decode_reply(std::string_view(answer).substr(kFrameHeadBytes));
  ASSERT_TRUE(back && back->value);
  EXPECT_EQ(*back->value, "");
  EXPECT_EQ(back->sum, 3);
  reply.error.emplace(ErrorCode::kInvalidArgument, "no");
  const std::string refusal = encode(reply);
  const auto no = decode_reply(std::string_view(refusal).substr(kFrameHeadBytes));
  ASSERT_TRUE(no && no->error);
  EXPECT_EQ(no->error->code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(no->error->message(), "no");
}

TEST(TcpStoreProtocol, TakesNothingElse) {
  const std::string request = encode(Request{Operation::kSet, 1, "key", "value", 0});
  const std::string reply = encode(Reply{std::nullopt, "value", 0});
  for (size_t cut = kFrameHeadBytes; cut < request.size(); ++cut) {
    EXPECT_FALSE(decode_request(std::string_view(request).substr(kFrameHeadBytes, cut - 4)));
  }
  for (size_t cut = kFrameHeadBytes; cut < reply.size(); ++cut) {
    EXPECT_FALSE(decode_reply(std::string_view(reply).substr(kFrameHeadBytes, cut - 4)));
  }
  EXPECT_FALSE(decode_request(request.substr(kFrameHeadBytes) + "x"));
  EXPECT_FALSE(decode_reply(reply.substr(kFrameHeadBytes) + "x"));
  std::string unknown = request.substr(kFrameHeadBytes);
  unknown[0] = 9;
  EXPECT_FALSE(decode_request(unknown));
  EXPECT_FALSE(frame_length(std::string("\xff\xff\xff\x7f", 4)));
  EXPECT_FALSE(frame_length(std::string(4, '\0')));
}

// ---- the table ----

Reply run(KeyTable& table, const Request& request, const std::string& client = "c") {
  Reply got;
  table.run(client, request, [&](const Reply& reply) { got = reply; });
  return got;
}

TEST(KeyTable, ForgetsAfterTheTimeToLive) {
  KeyTable table(milliseconds(50));
  run(table, {Operation::kSet, 1, "key", "value", 0});
  EXPECT_EQ(run(table, {Operation::kGet, 2, "key", "", 0}).value, "value");
  EXPECT_TRUE(eventually([&] { return !run(table, {Operation::kGet, 3, "key", "", 0}).value; }));
  EXPECT_EQ(run(table, {Operation::kSetIfAbsent, 4, "key", "next", 0}).value, "next");
}

TEST(KeyTable, CountsARepeatedAddOnce) {
  KeyTable table(seconds(60));
  EXPECT_EQ(run(table, {Operation::kAdd, 1, "n", "", 5}, "a").sum, 5);
  EXPECT_EQ(run(table, {Operation::kAdd, 1, "n", "", 5}, "a").sum, 5);
  EXPECT_EQ(run(table, {Operation::kAdd, 1, "n", "", 5}, "b").sum, 10);
  EXPECT_EQ(run(table, {Operation::kAdd, 2, "n", "", 5}, "a").sum, 15);
}

TEST(KeyTable, WakesOnlyWhomItConcerns) {
  KeyTable table(seconds(60));
  int woken = 0;
  const auto count = [&](const Reply&) { ++woken; };
  EXPECT_NE(table.run("a", {Operation::kWait, 1, "k", "", 0}, count), 0u);
  EXPECT_NE(table.run("b", {Operation::kWait, 1, "k", "new", 0}, count), 0u);
  EXPECT_NE(table.run("c", {Operation::kWait, 1, "other", "", 0}, count), 0u);
  const auto gone = table.run("d", {Operation::kWait, 1, "k", "", 0}, count);
  table.cancel(gone);
  run(table, {Operation::kSet, 2, "k", "new", 0});
  EXPECT_EQ(woken, 1);
  run(table, {Operation::kAdd, 3, "other", "", 1});
  EXPECT_EQ(woken, 2);
  run(table, {Operation::kSet, 4, "k", "", 0});
  EXPECT_EQ(woken, 3) << "an empty value is another one";
}

// ---- the store ----

TEST(TcpStore, ASecretIsNeededBeyondLoopback) {
  for (const bool host_it : {true, false}) {
    for (const std::string url :
         {"tcp://192.0.2.1:29500", "tcp://node-a", "tcp://[2001:db8::1]:5"}) {
      const auto store = open(options_for(url, host_it, ""));
      ASSERT_FALSE(store) << url;
      EXPECT_EQ(store.error().code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(store.error().message().find("PUSHPULL_SECRET or PUSHPULL_SECRET_FILE"),
                std::string::npos);
    }
  }
}

TEST(TcpStore, LoopbackWorksWithoutASecretAndIsTrusted) {
  for (const std::string name : {"127.0.0.1", "localhost", "[::1]"}) {
    auto first = open(options_for("tcp://" + name + ":0", true, ""));
    ASSERT_TRUE(first) << first.error().message();
    EXPECT_TRUE((*first)->trusted());
    EXPECT_TRUE((*first)->description().starts_with("tcp://" + name + ":"));
    auto second = open(options_for((*first)->description(), false, ""));
    ASSERT_TRUE(second) << second.error().message();
    EXPECT_TRUE((*second)->trusted());
    ASSERT_TRUE((*second)->set("k", "v", soon()));
    EXPECT_EQ((*first)->get("k", soon()).value(), "v");
  }
}

TEST(TcpStore, WithoutASecretOnlyLoopbackIsServed) {
  in_network_namespace(
      "ip link add d0 type veth peer name d1; ip addr add 10.9.0.1/24 dev d0; ip link set d0 up",
      [] {
        auto open_store = open(options_for("tcp://localhost:29500", true, ""));
        ASSERT_TRUE(open_store) << open_store.error().message();
        const auto outside = dial({"10.9.0.1", 29500}, "", hello_of(1, Purpose::kStore),
                                  deadline_in(milliseconds(200)));
        ASSERT_FALSE(outside);
        EXPECT_NE(outside.error().message().find("connection refused"), std::string::npos);
        // With one, the URL's address alone is served, and every address where it is none of ours.
        auto own = open(options_for("tcp://10.9.0.1:29501", true));
        ASSERT_TRUE(own) << own.error().message();
        EXPECT_FALSE((*own)->trusted());
        EXPECT_FALSE(dial({"127.0.0.1", 29501}, "secret", hello_of(1, Purpose::kStore),
                          deadline_in(milliseconds(200))));
        auto any = open(options_for("tcp://192.0.2.1:29502", true));
        ASSERT_TRUE(any) << any.error().message();
        for (const std::string host : {"127.0.0.1", "10.9.0.1", "::1"}) {
          EXPECT_TRUE(dial({host, 29502}, "secret", hello_of(1, Purpose::kStore), soon())) << host;
        }
      });
}

TEST(TcpStore, AnotherSecretOrJobIsRefusedAtOnce) {
  auto server = host();
  auto other_secret = open(options_for(server->description(), false, "another"));
  ASSERT_TRUE(other_secret);
  const auto began = Clock::now();
  auto got = (*other_secret)->get("k", deadline_in(seconds(60)));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(got.error().message().find("the secret of job 'job' differs"), std::string::npos);
  EXPECT_NE(got.error().message().find("PUSHPULL_SECRET"), std::string::npos);
  auto other_job = open(options_for(server->description(), false, "secret", "second"));
  ASSERT_TRUE(other_job);
  got = (*other_job)->wait("k", "", deadline_in(seconds(60)));
  ASSERT_FALSE(got);
  EXPECT_NE(got.error().message().find("this is the rendezvous of job 'job'"), std::string::npos);
  EXPECT_NE(got.error().message().find("'second'"), std::string::npos);
  EXPECT_LT(Clock::now() - began, seconds(30));
}

TEST(TcpStore, ATakenPortSaysByWhom) {
  auto server = host();
  const std::string url = server->description();
  const auto other_job = open(options_for(url, true, "secret", "second"), deadline_in(seconds(60)));
  ASSERT_FALSE(other_job);
  EXPECT_EQ(other_job.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(other_job.error().message().find("this is the rendezvous of job 'job'"),
            std::string::npos)
      << other_job.error().message();
  const auto other_secret = open(options_for(url, true, "another"), deadline_in(seconds(60)));
  ASSERT_FALSE(other_secret);
  EXPECT_NE(other_secret.error().message().find("a pushpull job with another secret has it"),
            std::string::npos);
  const auto same = open(options_for(url, true), deadline_in(milliseconds(500)));
  ASSERT_FALSE(same);
  EXPECT_NE(same.error().message().find(
                "another rank 0 or an earlier run of this job still has it (host " + host_name() + ", pid " +
                std::to_string(::getpid()) + "; this is host"),
            std::string::npos)
      << same.error().message();

  uint16_t port = 0;
  const Socket stranger = raw_listen(&port);
  const auto taken =
      open(options_for("tcp://127.0.0.1:" + std::to_string(port), true), deadline_in(seconds(1)));
  ASSERT_FALSE(taken);
  EXPECT_NE(taken.error().message().find("another program has it"), std::string::npos);
  EXPECT_NE(taken.error().message().find(std::to_string(port)), std::string::npos);
}

TEST(TcpStore, ARestartedRankZeroWaitsForTheOldOne) {
  auto old = host();
  const std::string url = old->description();
  auto next = std::async(std::launch::async, [&] { return open(options_for(url, true)); });
  std::this_thread::sleep_for(milliseconds(300));
  old.reset();
  const auto store = next.get();
  EXPECT_TRUE(store) << store.error().message();
}

TEST(TcpStore, WaitersSurviveARestartOfTheServer) {
  auto old = host();
  const std::string url = old->description();
  auto client = open(options_for(url, false));
  ASSERT_TRUE(client);
  auto waiting = std::async(std::launch::async, [&] { return (*client)->wait("k", "", soon()); });
  std::this_thread::sleep_for(milliseconds(200));
  old.reset();
  std::this_thread::sleep_for(milliseconds(200));
  auto next = open(options_for(url, true));
  ASSERT_TRUE(next) << next.error().message();
  ASSERT_TRUE((*next)->set("k", "again", soon()));
  const auto value = waiting.get();
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "again");
}

TEST(TcpStore, AServerThatIsNotThereIsATimeoutThatSaysSo) {
  uint16_t port = 0;
  raw_listen(&port).close();
  auto client = open(options_for("tcp://127.0.0.1:" + std::to_string(port), false));
  ASSERT_TRUE(client);
  const auto value = (*client)->wait("k", "", deadline_in(milliseconds(300)));
  ASSERT_FALSE(value);
  EXPECT_EQ(value.error().code(), ErrorCode::kTimeout);
  EXPECT_NE(value.error().message().find((*client)->description()), std::string::npos);
  EXPECT_NE(value.error().message().find("connection refused"), std::string::npos);
}

TEST(TcpStore, RefusesOtherUrls) {
  for (const std::string url : {"tcp://", "tcp://user:hunter2@127.0.0.1:5", "tcp://127.0.0.1:x",
                                "redis://127.0.0.1", "tcp://127.0.0.1:5/path"}) {
    const auto store = open(options_for(url, false));
    ASSERT_FALSE(store) << url;
    EXPECT_EQ(store.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(store.error().message().find("hunter2"), std::string::npos);
  }
  EXPECT_FALSE(open(options_for("tcp://127.0.0.1:0", false)));
}

// An authentic client that does not keep to the protocol is dropped alone.
TEST(TcpStore, AClientThatBreaksTheProtocolIsDropped) {
  auto server = host();
  Hello hello = hello_of(3, Purpose::kStore);
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff", 4), std::string(4, '\0'), std::string("\x02\0\0\0xy", 6),
        encode(Request{Operation::kWait, 1, "k", "", 0}) +
            encode(Request{Operation::kGet, 2, "k", "", 0})}) {
    const auto socket = dial({"127.0.0.1", port_of(*server)}, "secret", hello, soon());
    ASSERT_TRUE(socket);
    ASSERT_TRUE(send_all(*socket, bytes, soon()));
    char byte = 0;
    EXPECT_EQ(recv_all(*socket, &byte, 1, soon()).error().code(), ErrorCode::kPeerLost);
  }
  Hello data = hello_of(3, Purpose::kData);
  EXPECT_FALSE(dial({"127.0.0.1", port_of(*server)}, "secret", data, soon()));
  EXPECT_TRUE(server->set("k", "v", soon()));
}

TEST(TcpStore, HostileConnectionsDoNotDisturb) {
  auto server = host();
  auto client = open(options_for(server->description(), false));
  ASSERT_TRUE(client);
  const uint16_t port = port_of(*server);
  std::thread hostile([port] {
    for (int i = 0; i < 500; ++i) {
      const Socket socket = raw_connect(port);
      if (i % 2 == 0) raw_send(socket, "GET / HTTP/1.1\r\n\r\n");
    }
  });
  for (int i = 1; i <= 200; ++i) {
    const auto sum = (*client)->add("n", 1, soon());
    ASSERT_TRUE(sum) << sum.error().message();
    EXPECT_EQ(*sum, i);
  }
  hostile.join();
}

TEST(TcpStore, SixtyFourClientsWaitForOneKey) {
  auto server = host();
  std::vector<std::future<Result<std::string>>> waiting;
  for (int i = 0; i < 64; ++i) {
    waiting.push_back(std::async(std::launch::async, [&]() -> Result<std::string> {
      auto client = open(options_for(server->description(), false));
      if (!client) return fail(client.error());
      return (*client)->wait("k", "", soon());
    }));
  }
  ASSERT_TRUE(server->set("k", std::string(kMaxValueBytes, 'x'), soon()));
  for (auto& one : waiting) {
    const auto value = one.get();
    ASSERT_TRUE(value) << value.error().message();
    EXPECT_EQ(value->size(), kMaxValueBytes);
  }
}

}  // namespace
}  // namespace pushpull::tcp_store
