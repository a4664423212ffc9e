#include "launcher/hosts.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/net/endpoint.h"
#include "core/text.h"

namespace pushpull::launcher {
namespace {

constexpr int kMostSlots = 65536;
constexpr std::string_view kBlanks = " \t\r";

tl::unexpected<Error> invalid(const std::string& origin, const std::string& what) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", origin, what));
}

// What starters take for a host, and nothing that they could take for an option.
bool is_host_name(std::string_view name) {
  constexpr std::string_view known =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
  return !name.empty() && name.size() <= 255 && name.front() != '-' && name.front() != '.' &&
         name.find_first_not_of(known) == std::string_view::npos;
}

Result<int> slots(std::string_view text, const std::string& origin, std::string_view host) {
  const auto number = parse_integer(text);
  if (number && *number >= 1 && *number <= kMostSlots) return static_cast<int>(*number);
  return invalid(origin, fmt::format("host {} has {} for its number of workers; write it like {}:2",
                                     host, in_quotes(text), host));
}

Result<HostSlots> parse_host(std::string_view item, const std::string& origin) {
  const size_t colon = item.find(':');
  const std::string_view name = item.substr(0, colon);
  if (item.find(':', colon + 1) != std::string_view::npos && colon != std::string_view::npos) {
    return invalid(origin, fmt::format("{} is no host; an IPv6 address does not serve here, give "
                                       "the host's name, as in a:2",
                                       in_quotes(item)));
  }
  if (!is_host_name(name)) {
    return invalid(origin, fmt::format("{} is no host; write hosts like a:2,b:2", in_quotes(item)));
  }
  HostSlots host{std::string(name), 1, origin};
  if (colon != std::string_view::npos) {
    const auto number = slots(item.substr(colon + 1), origin, name);
    if (!number) return fail(number.error());
    host.slots = *number;
  }
  return host;
}

// Starters would take the second mention for another host, or add it up, each in its own way.
Result<void> add(std::vector<HostSlots>& hosts, HostSlots host, const OwnNames& own) {
  for (const HostSlots& other : hosts) {
    if (other.name == host.name) {
      return invalid(host.where, fmt::format("host {0} is listed twice; write it once, as in "
                                             "{0}:{1}",
                                             host.name, other.slots + host.slots));
    }
    if (is_own(other.name, own) && is_own(host.name, own)) {
      return invalid(host.where, fmt::format("{0} and {1} are the same host; write it once, as in "
                                             "{0}:{2}",
                                             other.name, host.name, other.slots + host.slots));
    }
  }
  hosts.push_back(std::move(host));
  return {};
}

}  // namespace

bool is_own(std::string_view name, const OwnNames& own) {
  return name == "localhost" || is_loopback(name) ||
         std::find(own.begin(), own.end(), name) != own.end();
}

Result<std::vector<HostSlots>> parse_hosts(std::string_view text, const std::string& origin,
                                           const OwnNames& own) {
  std::vector<HostSlots> hosts;
  std::string_view rest = trimmed(text);
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = trimmed(rest.substr(0, comma));
    if (item.empty()) {
      return invalid(origin, fmt::format("{} has an empty place in the list of hosts; write it "
                                         "like a:2,b:2",
                                         in_quotes(text)));
    }
    if (item.find_first_of(kBlanks) != std::string_view::npos) {
      return invalid(origin, fmt::format("{} has blanks between hosts; separate them by commas, "
                                         "as in a:2,b:2",
                                         in_quotes(text)));
    }
    auto host = parse_host(item, origin);
    if (!host) return fail(host.error());
    if (auto ok = add(hosts, std::move(*host), own); !ok) return fail(ok.error());
    if (comma == rest.size()) return hosts;
    rest.remove_prefix(comma + 1);
  }
}

Result<std::vector<HostSlots>> parse_hostfile(std::string_view content, const std::string& file,
                                              const OwnNames& own) {
  std::vector<HostSlots> hosts;
  for (int line = 1; !content.empty(); ++line) {
    const size_t end = std::min(content.find('\n'), content.size());
    std::string_view text = content.substr(0, end);
    content.remove_prefix(std::min(end + 1, content.size()));
    text = trimmed(text.substr(0, text.find('#')));
    if (text.empty()) continue;
    const std::string where = fmt::format("{}:{}", file, line);
    const size_t blank = std::min(text.find_first_of(kBlanks), text.size());
    auto host = parse_host(text.substr(0, blank), where);
    if (!host) return fail(host.error());
    std::string_view further = trimmed(text.substr(blank));
    if (!further.empty()) {
      if (!further.starts_with("slots=") || further.find_first_of(kBlanks) != further.npos) {
        return invalid(where, fmt::format("{} is not understood; write a host like '{} slots=2'",
                                          in_quotes(further), host->name));
      }
      const auto number = slots(further.substr(6), where, host->name);
      if (!number) return fail(number.error());
      host->slots = *number;
    }
    if (auto ok = add(hosts, std::move(*host), own); !ok) return fail(ok.error());
  }
  if (hosts.empty()) return invalid(file, "the hostfile lists no host");
  return hosts;
}

Result<std::vector<HostSlots>> configured_hosts(const Config& config, std::string_view hostfile,
                                                const OwnNames& own) {
  const ConfigValue& hosts = config.value("launch.hosts");
  const ConfigValue& file = config.value("launch.hostfile");
  if (!hosts.text.empty() && !file.text.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("hosts ({}) and a hostfile ({}) exclude each other", hosts.origin,
                            file.origin));
  }
  if (!hosts.text.empty()) return parse_hosts(hosts.text, hosts.origin, own);
  if (!file.text.empty()) return parse_hostfile(hostfile, file.text, own);
  return std::vector<HostSlots>();
}

std::vector<HostSlots>::const_iterator first_other_host(const std::vector<HostSlots>& hosts,
                                                        const OwnNames& own) {
  return std::find_if(hosts.begin(), hosts.end(),
                      [&](const HostSlots& host) { return !is_own(host.name, own); });
}

int slots_of(const std::vector<HostSlots>& hosts) {
  int sum = 0;
  for (const HostSlots& host : hosts) sum += host.slots;
  return sum;
}

std::vector<HostSlots> place(const std::vector<HostSlots>& hosts, int workers) {
  std::vector<HostSlots> used;
  for (HostSlots host : hosts) {
    if (workers <= 0) break;
    host.slots = std::min(host.slots, workers);
    workers -= host.slots;
    used.push_back(std::move(host));
  }
  return used;
}

std::string host_list(const std::vector<HostSlots>& hosts) {
  std::string text;
  for (const HostSlots& host : hosts) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots);
  }
  return text;
}

}  // namespace pushpull::launcher
