#include <gtest/gtest.h>

#include "core/net/dial_attempt.h"
#include "tests/unit/net_helpers.h"

namespace pushpull {
namespace {

using namespace pushpull::testing;

Result<std::unique_ptr<Acceptor>> listen_on(uint16_t port) {
  Acceptor::Options options;
  options.ports = {port, port};
  options.secret = "secret";
  return Acceptor::listen(std::move(options));
}

uint16_t free_port() {
  uint16_t port = 0;
  raw_listen(&port).close();
  return port;
}

TEST(Dial, WaitsForAListenerThatIsLate) {
  const uint16_t port = free_port();
  std::unique_ptr<Acceptor> acceptor;
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(700));
    auto listening = listen_on(port);
    if (listening) acceptor = std::move(*listening);
  });
  const auto dialed = dial({"127.0.0.1", port}, "secret", hello_of(1), deadline_in(seconds(30)));
  late.join();
  EXPECT_TRUE(dialed) << dialed.error().message();
}

TEST(Dial, SaysWhatItSawLast) {
  const uint16_t port = free_port();
  const auto began = Clock::now();
  const auto refused =
      dial({"127.0.0.1", port}, "secret", hello_of(1), deadline_in(milliseconds(400)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(refused.error().message(), "cannot connect to 127.0.0.1:" + std::to_string(port) +
                                           " within 0.4 s: connection refused");
  EXPECT_GE(Clock::now() - began, milliseconds(400));
  EXPECT_LT(Clock::now() - began, seconds(5));

  const auto nameless =
      dial({"no-such-host.invalid", 1}, "secret", hello_of(1), deadline_in(seconds(3)));
  ASSERT_FALSE(nameless);
  EXPECT_EQ(nameless.error().code(), ErrorCode::kTimeout);
  EXPECT_NE(nameless.error().message().find("host name no-such-host.invalid"), std::string::npos);
}

TEST(Dial, RefusesWhatIsNoAddress) {
  for (const Endpoint& nowhere : {Endpoint{"", 5}, Endpoint{"127.0.0.1", 0}}) {
    const auto dialed = dial(nowhere, "secret", hello_of(1), deadline_in(seconds(30)));
    ASSERT_FALSE(dialed);
    EXPECT_EQ(dialed.error().code(), ErrorCode::kInvalidArgument);
  }
}

TEST(Dial, MayBeCancelledAtAnyTime) {
  uint16_t port = 0;
  const Socket mute = raw_listen(&port);
  for (const Endpoint& target : {Endpoint{"127.0.0.1", free_port()}, Endpoint{"127.0.0.1", port}}) {
    const auto began = Clock::now();
    const auto dialed = dial(target, "secret", hello_of(1), deadline_in(seconds(60)),
                             [&] { return Clock::now() - began > milliseconds(300); });
    ASSERT_FALSE(dialed);
    EXPECT_EQ(dialed.error().code(), ErrorCode::kAborted);
    EXPECT_LT(Clock::now() - began, seconds(4));
  }
}

TEST(Dial, TriesAgainAfterOneThatNeverAnswers) {
  uint16_t port = 0;
  Socket mute = raw_listen(&port);
  const auto began = Clock::now();
  std::unique_ptr<Acceptor> acceptor;
  std::thread replacement([&] {
    std::this_thread::sleep_for(milliseconds(500));
    // The connection that the mute one took stays open, unanswered.
    const Socket taken(::accept4(mute.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    mute.close();
    auto listening = listen_on(port);
    EXPECT_TRUE(listening) << listening.error().message();
    if (listening) acceptor = std::move(*listening);
    std::this_thread::sleep_for(seconds(7));
  });
  const auto dialed = dial({"127.0.0.1", port}, "secret", hello_of(1), deadline_in(seconds(60)));
  EXPECT_TRUE(dialed) << dialed.error().message();
  EXPECT_GE(Clock::now() - began, kAttemptLimit);
  replacement.join();
}

TEST(Dial, TriesAgainWhereTheConnectionBreaksOrNoPushpullAnswers) {
  uint16_t port = 0;
  Socket listener = raw_listen(&port);
  std::unique_ptr<Acceptor> acceptor;
  std::thread rude([&] {
    for (const std::string_view answer :
         {"", "HTTP/1.1 400 Bad Request\r\n\r\n", "ppul", "-ERR\r\n"}) {
      const Socket guest(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      raw_send(guest, answer);
    }
    listener.close();
    if (auto listening = listen_on(port)) acceptor = std::move(*listening);
  });
  const auto dialed = dial({"127.0.0.1", port}, "secret", hello_of(1), deadline_in(seconds(60)));
  rude.join();
  EXPECT_TRUE(dialed) << dialed.error().message();
}

TEST(Dial, AnImpostorIsNotBelieved) {
  uint16_t port = 0;
  const Socket listener = raw_listen(&port);
  std::thread impostor([&] {
    const Socket guest(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    ServerHandshake challenge("it does not know the secret", {});
    raw_send(guest, challenge.output());
    char buffer[4096];
    (void)!::recv(guest.fd(), buffer, sizeof(buffer), 0);
    raw_send(guest, std::string("\x01\0\0", 3) + std::string(32, 'x'));
  });
  const auto dialed = dial({"127.0.0.1", port}, "secret", hello_of(1), deadline_in(seconds(1)));
  impostor.join();
  EXPECT_FALSE(dialed);
}

TEST(Dial, NeverConnectsToItself) {
  in_network_namespace("echo '45000 45000' > /proc/sys/net/ipv4/ip_local_port_range", [] {
    for (int i = 0; i < 3; ++i) {
      const auto dialed =
          dial({"127.0.0.1", 45000}, "secret", hello_of(1), deadline_in(milliseconds(300)));
      ASSERT_FALSE(dialed);
      EXPECT_NE(dialed.error().message().find("connection refused"), std::string::npos)
          << dialed.error().message();
    }
  });
}

TEST(Dial, ASwallowedConnectEndsAtTheDeadline) {
  in_network_namespace(
      "ip link add d0 type veth peer name d1; ip addr add 10.9.0.1/24 dev d0; ip link set d0 up;"
      "ip link set d1 up;"
      "ip neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev d0",
      [] {
        const auto began = Clock::now();
        const auto dialed =
            dial({"10.9.0.2", 29500}, "secret", hello_of(1), deadline_in(milliseconds(600)));
        ASSERT_FALSE(dialed);
        EXPECT_EQ(dialed.error().code(), ErrorCode::kTimeout);
        EXPECT_EQ(dialed.error().message(),
                  "cannot connect to 10.9.0.2:29500 within 0.6 s: connection timed out");
        EXPECT_LT(Clock::now() - began, seconds(4));
      });
}

TEST(Backoff, GrowsToHalfASecond) {
  Backoff backoff;
  Duration last = {};
  for (int i = 0; i < 12; ++i) last = backoff.next();
  EXPECT_GE(last, milliseconds(250));
  EXPECT_LE(last, milliseconds(500));
  backoff.reset();
  EXPECT_LE(backoff.next(), milliseconds(10));
}

TEST(SendAll, EndsAtTheDeadline) {
  uint16_t port = 0;
  const Socket listener = raw_listen(&port);
  Acceptor::Options options;
  auto acceptor = Acceptor::listen(options);
  ASSERT_TRUE(acceptor);
  auto socket = dial((*acceptor)->endpoint(), "", hello_of(1), deadline_in(seconds(10)));
  ASSERT_TRUE(socket);
  char byte = 0;
  const auto lost = recv_all(*socket, &byte, 1, deadline_in(seconds(10)));
  EXPECT_EQ(lost.error().code(), ErrorCode::kPeerLost) << "nobody took the connection";

  Socket left = raw_connect(port);
  const Socket right(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  EXPECT_EQ(recv_all(right, &byte, 1, deadline_in(milliseconds(50))).error().code(),
            ErrorCode::kTimeout);
  const std::string much(64u << 20, 'x');
  EXPECT_EQ(send_all(right, much, deadline_in(milliseconds(100))).error().code(),
            ErrorCode::kTimeout);
  left.close();
  EXPECT_EQ(send_all(right, much, deadline_in(seconds(10))).error().code(), ErrorCode::kPeerLost);
}

}  // namespace
}  // namespace pushpull
