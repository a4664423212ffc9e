#include "core/net/endpoint.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "core/net/resolve.h"
#include "core/net/socket.h"
#include "core/text.h"

namespace pushpull {
namespace {

// An address as bytes, 4 or 16.
struct AddressBytes {
  std::array<uint8_t, 16> bytes = {};
  int bits = 0;  // 32 or 128
};

std::optional<AddressBytes> address_bytes(std::string_view text) {
  // Behind % there is a scope, which is not part of the address.
  const std::string plain(text.substr(0, text.find('%')));
  AddressBytes address;
  if (inet_pton(AF_INET, plain.c_str(), address.bytes.data()) == 1) {
    address.bits = 32;
  } else if (inet_pton(AF_INET6, plain.c_str(), address.bytes.data()) == 1) {
    address.bits = 128;
  } else {
    return std::nullopt;
  }
  return address;
}

bool same_network(const AddressBytes& a, const AddressBytes& b, int prefix) {
  if (a.bits != b.bits) return false;
  for (int bit = 0; bit < prefix; ++bit) {
    const auto byte = static_cast<size_t>(bit / 8);
    const int mask = 0x80 >> (bit % 8);
    if ((a.bytes[byte] & mask) != (b.bytes[byte] & mask)) return false;
  }
  return true;
}

template <class Integer>
std::optional<Integer> parse_number(std::string_view text) {
  Integer value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int mask_bits(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  const uint8_t* bytes = nullptr;
  size_t count = 0;
  if (mask->sa_family == AF_INET) {
    bytes = reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr);
    count = 4;
  } else if (mask->sa_family == AF_INET6) {
    bytes =
        reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr);
    count = 16;
  }
  int bits = 0;
  for (size_t i = 0; i < count; ++i) bits += __builtin_popcount(bytes[i]);
  return bits;
}

// Link-local IPv6 means nothing without an interface, which the other host does not know.
bool usable(const Interface& i) {
  return i.up && (i.address.find(':') == std::string::npos || !i.address.starts_with("fe80"));
}

bool is_v6(const Interface& i) { return i.address.find(':') != std::string::npos; }

// How one item of the wanted list fits an interface: better is larger, 0 is not at all.
int match(std::string_view item, const Interface& i) {
  if (const size_t slash = item.find('/'); slash != std::string_view::npos) {
    const auto network = address_bytes(item.substr(0, slash));
    const auto prefix = parse_number<int>(item.substr(slash + 1));
    const auto address = address_bytes(i.address);
    return network && prefix && address && same_network(*network, *address, *prefix) ? 2 : 0;
  }
  if (const auto exact = address_bytes(item)) {
    const auto address = address_bytes(i.address);
    return address && same_network(*exact, *address, exact->bits) ? 2 : 0;
  }
  if (i.name == item) return 2;
  return i.name.starts_with(item) ? 1 : 0;
}

Result<void> check_item(std::string_view item) {
  const size_t slash = item.find('/');
  if (slash == std::string_view::npos) return {};
  const auto network = address_bytes(item.substr(0, slash));
  const auto prefix = parse_number<int>(item.substr(slash + 1));
  if (network && prefix && *prefix >= 0 && *prefix <= network->bits) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' in PUSHPULL_INTERFACE is not a network such as 10.0.0.0/8", item));
}

// What `wanted` says, taken apart.
struct Wishes {
  std::vector<std::string_view> take;
  std::vector<std::string_view> leave;
  int family = AF_UNSPEC;  // AF_INET or AF_INET6: no other
};

Result<Wishes> parse_wishes(std::string_view wanted) {
  Wishes wishes;
  for (const std::string_view part : split(wanted, ',')) {
    std::string_view item = trimmed(part);
    if (item.empty()) continue;
    const bool exclude = item.front() == '^';
    if (exclude) item = trimmed(item.substr(1));
    if (item.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "PUSHPULL_INTERFACE has a '^' with no interface behind it");
    }
    if (item == "ipv4" || item == "ipv6") {
      const int family = (item == "ipv4") != exclude ? AF_INET : AF_INET6;
      if (wishes.family != AF_UNSPEC && wishes.family != family) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("PUSHPULL_INTERFACE='{}' leaves no family of addresses", wanted));
      }
      wishes.family = family;
      continue;
    }
    if (auto ok = check_item(item); !ok) return fail(ok.error());
    (exclude ? wishes.leave : wishes.take).push_back(item);
  }
  return wishes;
}

std::string describe(const std::vector<Interface>& interfaces) {
  std::string text;
  for (const Interface& i : interfaces) {
    text += fmt::format("{}{} ({}{})", text.empty() ? "" : ", ", i.name, i.address,
                        i.up ? "" : ", down");
  }
  return text.empty() ? "none" : text;
}

const Interface* best_match(std::string_view item, const std::vector<Interface>& interfaces,
                            bool prefer_v6) {
  const Interface* best = nullptr;
  int best_score = 0;
  for (const Interface& i : interfaces) {
    const int fits = match(item, i);
    const int score = fits == 0 ? 0 : 2 * fits + (is_v6(i) == prefer_v6 ? 1 : 0);
    if (score > best_score) {
      best = &i;
      best_score = score;
    }
  }
  return best;
}

// The local address of the route to `to`; empty where there is none.
std::string route_source(const SocketAddress& to) {
  const Socket socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress target = to;
  if (target.port() == 0) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&target.storage);
    v4->sin_port = htons(9);  // the same place in sockaddr_in6; any port will do
  }
  if (!socket.valid() || ::connect(socket.fd(), target.get(), target.length) != 0) return {};
  SocketAddress local;
  local.length = sizeof(local.storage);
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&local.storage), &local.length) != 0) {
    return {};
  }
  return local.host();
}

bool says_loopback(std::string_view host) { return host == "localhost" || is_loopback(host); }

// Addresses of `toward`, waiting for its name if the answer matters.
std::vector<SocketAddress> resolve_target(const Endpoint& toward, bool patient, Deadline deadline) {
  if (toward.host.empty()) return {};
  const auto now = Clock::now();
  const auto half =
      deadline == never() ? now + std::chrono::seconds(30) : now + (deadline - now) / 2;
  NameLookup lookup(toward);
  while (true) {
    auto found = lookup.find(half);
    if (found) return std::move(*found);
    if (!patient || milliseconds_left(half) == 0) return {};
    usleep(static_cast<useconds_t>(milliseconds_left(half, 200)) * 1000);
  }
}

std::string fallback(const std::vector<Interface>& interfaces, bool prefer_v6) {
  const Interface* first = nullptr;
  for (const Interface& i : interfaces) {
    if (i.loopback) continue;
    if (first == nullptr || (is_v6(i) == prefer_v6 && is_v6(*first) != prefer_v6)) first = &i;
  }
  return first != nullptr ? first->address : "127.0.0.1";
}

std::string by_route(const Endpoint& toward, const std::vector<Interface>& allowed,
                     Deadline deadline) {
  if (says_loopback(toward.host)) {
    return toward.host.find(':') != std::string::npos ? "::1" : "127.0.0.1";
  }
  const auto choices =
      std::count_if(allowed.begin(), allowed.end(), [](const Interface& i) { return !i.loopback; });
  bool prefer_v6 = false;
  for (const SocketAddress& to : resolve_target(toward, choices > 1, deadline)) {
    prefer_v6 = to.family() == AF_INET6;
    if (is_loopback(to.host())) continue;  // 127.0.1.1, as some systems call themselves
    const std::string source = route_source(to);
    const bool is_allowed = std::any_of(allowed.begin(), allowed.end(),
                                        [&](const Interface& i) { return i.address == source; });
    if (is_allowed) return source;
  }
  return fallback(allowed, prefer_v6);
}

}  // namespace

std::string Endpoint::to_string() const {
  const bool v6 = host.find(':') != std::string::npos;
  return v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Endpoint> parse_endpoint(std::string_view text, uint16_t default_port) {
  const auto wrong = [&](std::string_view why) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is not an address such as host:29500 or [::1]:29500: {}", text, why));
  };
  Endpoint endpoint;
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return wrong("the ']' is missing");
    endpoint.host = text.substr(1, close - 1);
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return wrong("only :port may follow the ']'");
    const auto address = address_bytes(endpoint.host);
    if (!address || address->bits != 128) return wrong("between [ and ] belongs an IPv6 address");
    has_port = !rest.empty();
    port = has_port ? rest.substr(1) : rest;
  } else {
    const size_t colon = text.find(':');
    endpoint.host = text.substr(0, colon);
    has_port = colon != std::string_view::npos;
    port = has_port ? text.substr(colon + 1) : std::string_view();
    if (port.find(':') != std::string_view::npos) return wrong("an IPv6 address needs brackets");
  }
  if (endpoint.host.empty()) return wrong("the host is missing");
  if (endpoint.host.size() > 255 || endpoint.host.find_first_of(" \t\r\n/@") != std::string::npos ||
      endpoint.host.find('\0') != std::string::npos) {
    return wrong("this is not a host name");
  }
  if (!has_port && default_port == 0) return wrong("the port is missing");
  const auto number = has_port ? parse_number<uint16_t>(port) : default_port;
  if (!number) return wrong("the port is a number up to 65535");
  endpoint.port = *number;
  return endpoint;
}

Result<PortRange> parse_ports(std::string_view text) {
  text = trimmed(text);
  if (text.empty()) return PortRange{};
  const size_t dash = text.find('-');
  const auto first = parse_number<uint16_t>(trimmed(text.substr(0, dash)));
  const auto last = dash == std::string_view::npos
                        ? first
                        : parse_number<uint16_t>(trimmed(text.substr(dash + 1)));
  if (!first || !last || *first == 0 || *last < *first) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a range of ports such as 30000-30100", text));
  }
  return PortRange{*first, *last};
}

Result<std::vector<Interface>> list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot list the network interfaces: {}", errno_text(errno)));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, i->ifa_addr, address.length);
    interfaces.push_back({i->ifa_name, address.host(), mask_bits(i->ifa_netmask),
                          (i->ifa_flags & IFF_LOOPBACK) != 0, (i->ifa_flags & IFF_UP) != 0});
  }
  return interfaces;
}

Result<std::string> choose_address(std::string_view wanted, const Endpoint& toward,
                                   Deadline deadline) {
  auto wishes = parse_wishes(wanted);
  if (!wishes) return fail(wishes.error());
  auto interfaces = list_interfaces();
  if (!interfaces) return fail(interfaces.error());
  std::vector<Interface> allowed;
  for (const Interface& i : *interfaces) {
    const bool excluded = std::any_of(wishes->leave.begin(), wishes->leave.end(),
                                      [&](std::string_view item) { return match(item, i) > 0; });
    const bool of_family = wishes->family == AF_UNSPEC || is_v6(i) == (wishes->family == AF_INET6);
    if (usable(i) && !excluded && of_family) allowed.push_back(i);
  }
  if (wishes->take.empty() && (wishes->family == AF_UNSPEC || !allowed.empty())) {
    return by_route(toward, allowed, deadline);
  }
  const bool prefer_v6 = toward.host.find(':') != std::string::npos;
  for (const std::string_view item : wishes->take) {
    if (const Interface* found = best_match(item, allowed, prefer_v6)) return found->address;
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("no interface of host {} matches PUSHPULL_INTERFACE='{}'; it has {}",
                          host_name(), wanted, describe(*interfaces)));
}

bool is_loopback(std::string_view numeric) {
  const auto address = address_bytes(numeric);
  if (!address) return false;
  if (address->bits == 32) return address->bytes[0] == 127;
  const auto v6 = reinterpret_cast<const in6_addr*>(address->bytes.data());
  return IN6_IS_ADDR_LOOPBACK(v6) || (IN6_IS_ADDR_V4MAPPED(v6) && address->bytes[12] == 127);
}

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace pushpull
