// Addresses: parsing, resolving, and the choice of the interface that others reach us by.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/deadline.h"
#include "core/error.h"

namespace pushpull {

struct Endpoint {
  std::string host;  // name or numeric address, IPv6 without brackets
  uint16_t port = 0;
  std::string to_string() const;  // "host:port", "[::1]:port"
};

// "host:port", "[v6]:port"; the port is needed unless default_port is not 0. Port 0 stands for any.
[[nodiscard]] Result<Endpoint> parse_endpoint(std::string_view text, uint16_t default_port = 0);

// A range of ports, "30000-30100" or "30000"; empty text: any port (0, 0).
struct PortRange {
  uint16_t first = 0;
  uint16_t last = 0;
};
[[nodiscard]] Result<PortRange> parse_ports(std::string_view text);

struct Interface {
  std::string name;     // "eth0"
  std::string address;  // numeric
  int prefix = 0;       // bits of the network mask
  bool loopback = false;
  bool up = false;
};
[[nodiscard]] Result<std::vector<Interface>> list_interfaces();

// The numeric address of this host that others should use.
// `wanted`: empty, or a comma-separated list of interface names, name prefixes ("eth"), networks
// ("10.0.0.0/8"), numeric addresses, and exclusions ("^docker0"); "ipv4" or "ipv6" among them takes
// addresses of that family only ("^ipv4" of the other). The first match in the list's order wins
// (an exact name before a prefix, the family of `toward` before the other, else IPv4). Where
// nothing matches, the error lists the interfaces. Empty, or only exclusions: the address by which
// the route to `toward` leaves (UDP connect; nothing is sent); where `toward` is empty, resolves to
// loopback or is unknown: loopback if `toward` is itself loopback ("localhost", 127.0.0.1), else
// the first interface that is up and not loopback, else loopback. A name that does not resolve yet
// is waited for during half of the time that is left, and only where this host has a choice.
[[nodiscard]] Result<std::string> choose_address(std::string_view wanted, const Endpoint& toward,
                                                 Deadline deadline);

bool is_loopback(std::string_view numeric_address);
std::string host_name();

}  // namespace pushpull
