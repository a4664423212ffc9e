#include "core/net/endpoint.h"

#include <gtest/gtest.h>

#include "core/net/resolve.h"
#include "tests/unit/net_helpers.h"

namespace pushpull {
namespace {

using testing::in_network_namespace;
using testing::seconds;

std::string round_trip(std::string_view text, uint16_t default_port = 0) {
  const auto endpoint = parse_endpoint(text, default_port);
  return endpoint ? endpoint->to_string() : "error: " + endpoint.error().message();
}

TEST(Endpoint, ParsesHostsAndPorts) {
  EXPECT_EQ(round_trip("node-a:29500"), "node-a:29500");
  EXPECT_EQ(round_trip("10.0.0.1:1"), "10.0.0.1:1");
  EXPECT_EQ(round_trip("[::1]:29500"), "[::1]:29500");
  EXPECT_EQ(round_trip("[fe80::1%eth0]:5"), "[fe80::1%eth0]:5");
  EXPECT_EQ(round_trip("node-a", 29500), "node-a:29500");
  EXPECT_EQ(round_trip("[::1]", 29500), "[::1]:29500");
  EXPECT_EQ(round_trip("node-a:7", 29500), "node-a:7");
  EXPECT_EQ(round_trip("127.0.0.1:0"), "127.0.0.1:0");
  EXPECT_EQ(parse_endpoint("[::1]:7")->host, "::1");
}

TEST(Endpoint, RefusesWhatIsNone) {
  for (const std::string_view text :
       {"", ":1", "node-a", "node-a:", "node-a:x", "node-a:65536", "node-a:-1", "node-a: 5",
        "::1:5", "[::1", "[::1]5", "[node-a]:5", "[]:5", "a b:5", "user@host:5", "a/b:5"}) {
    const auto endpoint = parse_endpoint(text);
    ASSERT_FALSE(endpoint) << text;
    EXPECT_EQ(endpoint.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(endpoint.error().message().find(std::string(text)), std::string::npos);
  }
}

TEST(Endpoint, ParsesPortRanges) {
  EXPECT_EQ(parse_ports("")->first, 0);
  EXPECT_EQ(parse_ports("30000")->last, 30000);
  const auto range = parse_ports(" 30000 - 30100 ");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 30000);
  EXPECT_EQ(range->last, 30100);
  for (const std::string_view text : {"0", "5-4", "x", "1-", "-1", "1-2-3", "70000", "1-70000"}) {
    EXPECT_FALSE(parse_ports(text)) << text;
  }
}

TEST(Endpoint, KnowsLoopback) {
  EXPECT_TRUE(is_loopback("127.0.0.1"));
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_TRUE(is_loopback("::ffff:127.0.0.1"));
  EXPECT_FALSE(is_loopback("10.0.0.1"));
  EXPECT_FALSE(is_loopback("::"));
  EXPECT_FALSE(is_loopback("localhost"));
  EXPECT_FALSE(is_loopback(""));
}

TEST(Endpoint, ListsTheLoopbackInterface) {
  const auto interfaces = list_interfaces();
  ASSERT_TRUE(interfaces);
  bool found = false;
  for (const Interface& i : *interfaces) {
    if (i.address != "127.0.0.1") continue;
    found = true;
    EXPECT_EQ(i.name, "lo");
    EXPECT_EQ(i.prefix, 8);
    EXPECT_TRUE(i.loopback);
    EXPECT_TRUE(i.up);
  }
  EXPECT_TRUE(found);
}

TEST(Endpoint, ChoosesLoopbackTowardLoopback) {
  for (const std::string host : {"127.0.0.1", "localhost"}) {
    EXPECT_EQ(choose_address("", {host, 29500}, deadline_in(seconds(5))).value(), "127.0.0.1");
  }
  EXPECT_EQ(choose_address("", {"::1", 29500}, deadline_in(seconds(5))).value(), "::1");
}

TEST(Endpoint, ChoosesWhatIsWanted) {
  const Deadline soon = deadline_in(seconds(5));
  for (const std::string_view wanted :
       {"lo", "127.0.0.1", "127.0.0.0/8", " nothing0 , lo ", "l", "^nothing0,lo"}) {
    EXPECT_EQ(choose_address(wanted, {}, soon).value(), "127.0.0.1") << wanted;
  }
}

TEST(Endpoint, SaysWhichInterfacesThereAre) {
  for (const std::string_view wanted :
       {"an-interface-name-of-25-char", "lo,^lo", "203.0.113.0/24"}) {
    const auto address = choose_address(wanted, {}, deadline_in(seconds(5)));
    ASSERT_FALSE(address) << wanted;
    EXPECT_EQ(address.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(address.error().message().find("lo (127.0.0.1)"), std::string::npos);
    EXPECT_NE(address.error().message().find("PUSHPULL_INTERFACE"), std::string::npos);
  }
  EXPECT_FALSE(choose_address("^", {}, deadline_in(seconds(5))));
  EXPECT_FALSE(choose_address("10.0.0.0/33", {}, deadline_in(seconds(5))));
  EXPECT_FALSE(choose_address("node/8", {}, deadline_in(seconds(5))));
}

TEST(Endpoint, ANameThatDoesNotResolveStillGivesAnAddress) {
  const auto began = Clock::now();
  const auto address = choose_address("", {"no-such-host.invalid", 1}, deadline_in(seconds(2)));
  ASSERT_TRUE(address);
  EXPECT_TRUE(numeric_address({*address, 1}));
  EXPECT_LT(Clock::now() - began, seconds(10));
}

// The far ends of the pairs are up but have no address.
constexpr char kInterfaces[] =
    "ip link add docker0 type veth peer name x0; ip link set x0 up; ip addr add 172.17.0.1/16 dev "
    "docker0; ip link set docker0 up;"
    "ip link add eth10 type veth peer name x10; ip link set x10 up; ip addr add 10.10.0.7/16 dev "
    "eth10; ip link set eth10 up;"
    "ip link add eth1 type veth peer name x1; ip link set x1 up; ip addr add 10.1.0.7/16 dev eth1; "
    "ip link set eth1 up;"
    "ip addr add fd00::7/64 dev eth1 nodad;"
    "ip link add ib0 type veth peer name x2; ip link set x2 up; ip addr add 10.2.0.7/16 dev ib0;"
    "ip route add 192.0.2.0/24 via 10.1.0.1 dev eth1";

std::string chosen(std::string_view wanted, const Endpoint& toward = {}) {
  const auto address = choose_address(wanted, toward, deadline_in(seconds(2)));
  return address ? *address : address.error().message();
}

TEST(Endpoint, ChoosesAmongRealInterfaces) {
  in_network_namespace(kInterfaces, [] {
    EXPECT_EQ(chosen(""), "172.17.0.1");
    EXPECT_EQ(chosen("^docker0"), "10.10.0.7");
    EXPECT_EQ(chosen("^docker0,^eth10"), "10.1.0.7");
    EXPECT_EQ(chosen("^172.17.0.0/16"), "10.10.0.7");
    EXPECT_EQ(chosen("eth1"), "10.1.0.7") << "the exact name before the prefix";
    EXPECT_EQ(chosen("eth"), "10.10.0.7");
    EXPECT_EQ(chosen("eth,^eth10"), "10.1.0.7");
    EXPECT_EQ(chosen("10.1.0.0/16"), "10.1.0.7");
    EXPECT_EQ(chosen("fd00::/8"), "fd00::7");
    EXPECT_EQ(chosen("eth1", {"fd00::9", 1}), "fd00::7");
    EXPECT_EQ(chosen("ib0, eth1"), "10.1.0.7") << "an interface that is down does not count";
    EXPECT_NE(chosen("ib0").find("ib0 (10.2.0.7, down)"), std::string::npos);
  });
}

TEST(Endpoint, ChoosesTheFamily) {
  in_network_namespace(kInterfaces, [] {
    EXPECT_EQ(chosen("ipv6"), "fd00::7");
    EXPECT_EQ(chosen("^ipv4"), "fd00::7");
    EXPECT_EQ(chosen("eth1,ipv6"), "fd00::7");
    EXPECT_EQ(chosen("eth1,ipv4", {"fd00::9", 1}), "10.1.0.7") << "though the other end has IPv6";
    EXPECT_EQ(chosen("eth1,^ipv6"), "10.1.0.7");
    EXPECT_EQ(chosen("ipv6,^ipv4"), "fd00::7");
    EXPECT_NE(chosen("ipv4,ipv6").find("leaves no family"), std::string::npos);
    EXPECT_NE(chosen("docker0,ipv6").find("no interface of host"), std::string::npos);
    EXPECT_EQ(chosen("ipv4", {"192.0.2.5", 29500}), "10.1.0.7") << "still by the route";
  });
}

TEST(Endpoint, TheSameBridgeOnEveryHostIsLeftOut) {
  in_network_namespace(kInterfaces, [] {
    EXPECT_EQ(chosen("^docker0", {"172.17.0.9", 29500}), "10.10.0.7")
        << "although the route to such an address leads there";
    EXPECT_EQ(chosen("^docker,^br-"), "10.10.0.7") << "by prefix";
  });
}

TEST(Endpoint, FollowsTheRoute) {
  in_network_namespace(kInterfaces, [] {
    EXPECT_EQ(chosen("", {"10.1.0.99", 29500}), "10.1.0.7");
    EXPECT_EQ(chosen("", {"192.0.2.5", 29500}), "10.1.0.7");
    EXPECT_EQ(chosen("", {"10.10.0.7", 29500}), "10.10.0.7") << "toward ourselves";
    EXPECT_EQ(chosen("", {"fd00::9", 0}), "fd00::7");
    EXPECT_EQ(chosen("", {"203.0.113.1", 29500}), "172.17.0.1") << "no route: the first one";
    EXPECT_EQ(chosen("^eth1", {"192.0.2.5", 29500}), "172.17.0.1");
    EXPECT_EQ(chosen("", {"127.0.0.1", 29500}), "127.0.0.1");
  });
}

TEST(Endpoint, AHostWithoutANetworkUsesLoopback) {
  in_network_namespace("true", [] { EXPECT_EQ(chosen("", {"192.0.2.5", 29500}), "127.0.0.1"); });
}

TEST(NameLookup, AnswersNumbersAndNames) {
  for (const std::string host : {"127.0.0.1", "::1"}) {
    NameLookup lookup({host, 80});
    const auto found = lookup.find(deadline_in(seconds(5)));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->front().to_string(), (Endpoint{host, 80}.to_string()));
  }
  NameLookup lookup({"localhost", 80});
  for (int i = 0; i < 2; ++i) {
    const auto found = lookup.find(deadline_in(seconds(10)));
    ASSERT_TRUE(found) << found.error().message();
    EXPECT_TRUE(is_loopback(found->front().host()));
  }
}

TEST(NameLookup, EndsAtItsDeadlineAndWhenCancelled) {
  NameLookup lookup({"no-such-host.invalid", 80});
  const auto at_once = lookup.find(Clock::now());
  ASSERT_FALSE(at_once);
  const auto cancelled = lookup.find(deadline_in(seconds(60)), [] { return true; });
  ASSERT_FALSE(cancelled);
  const auto missing = lookup.find(deadline_in(seconds(60)));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(missing.error().message().find("no-such-host.invalid does not resolve"),
            std::string::npos);
}

}  // namespace
}  // namespace pushpull
