#include "launcher/check/group_checks.h"

#include <cmath>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "core/kvstore.h"
#include "core/net/acceptor.h"
#include "core/net/endpoint.h"
#include "core/rendezvous_store.h"
#include "launcher/check/peer_service.h"

namespace pushpull::launcher {
namespace {

using namespace std::chrono_literals;

constexpr auto kReachLimit = 5s;
constexpr double kLargestSkew = 1.0;  // seconds; log files are hard to compare beyond

struct Peer {
  Endpoint endpoint;
  std::string host;
};

// Where something listens, as others write it into the store: "10.0.0.1:30000 node-a".
std::optional<Peer> parse_peer(const std::string& text) {
  const size_t blank = text.find(' ');
  const auto endpoint = parse_endpoint(text.substr(0, blank));
  if (!endpoint || blank == std::string::npos) return std::nullopt;
  return Peer{*endpoint, text.substr(blank + 1)};
}

class GroupCheck {
 public:
  GroupCheck(const Settings& settings, const Identity& identity, Registry& registry)
      : settings_(settings),
        identity_(identity),
        registry_(registry),
        deadline_(deadline_in(settings.rendezvous_timeout)) {}

  std::vector<Finding> run() {
    if (!open_store() || !publish() || !find_peers()) return std::move(findings_);
    reach_everybody();
    compare_clocks();
    measure_links();
    // Whoever leaves first would look unreachable to the others.
    mark("done", "1");
    for (int rank = 0; rank < identity_.size; ++rank) await("done", rank);
    if (identity_.rank == 0) {  // it may serve the store: the last to leave
      for (int rank = 1; rank < identity_.size; ++rank) await("gone", rank);
    } else {
      mark("gone", "1");
    }
    return std::move(findings_);
  }

 private:
  std::string key(std::string_view what, int rank) const {
    return fmt::format("check:{}:{}:{}", settings_.job, what, rank);
  }
  void mark(std::string_view what, std::string_view value) {
    (void)store_->set(key(what, identity_.rank), value, deadline_);  // those who miss it say so
  }
  Result<std::string> await(std::string_view what, int rank) {
    return store_->wait(key(what, rank), "", deadline_);
  }

  bool open_store() {
    auto options = rendezvous_options(settings_);
    if (!options) return give_up("rendezvous", options.error(), kRendezvousTodo);
    options->host_it = identity_.rank == 0;
    options->time_to_live = 300s;
    auto store = pushpull::open_store(*options, registry_, deadline_);
    if (!store) return give_up("rendezvous", store.error(), kRendezvousTodo);
    store_ = std::move(*store);
    return true;
  }

  bool give_up(std::string check, const Error& error, std::string todo) {
    findings_.push_back(failed(std::move(check), error.message(), std::move(todo)));
    return false;
  }

  bool publish() {
    const Endpoint toward = rendezvous_host(settings_.rendezvous);
    const auto address = choose_address(settings_.interface, toward, deadline_);
    if (!address) return give_up("interface", address.error(), "name another interface");
    const auto ports = parse_ports(settings_.ports);
    auto service =
        PeerService::start(*address, ports.value_or(PortRange{}), settings_.secret, settings_.job);
    if (!service) {
      return give_up("ports", service.error(), "free a port, or give a larger range by --ports");
    }
    service_ = std::move(*service);
    const std::string text = fmt::format("{} {}", service_->endpoint().to_string(), host_name());
    if (auto ok = store_->set(key("at", identity_.rank), text, deadline_); !ok) {
      return give_up("rendezvous", ok.error(), kRendezvousTodo);
    }
    findings_.push_back(pass("rendezvous", store_->description() + " can be reached and written"));
    return true;
  }

  bool find_peers() {
    std::vector<int> absent;
    for (int rank = 0; rank < identity_.size; ++rank) {
      const auto text = await("at", rank);
      const auto peer = text ? parse_peer(*text) : std::nullopt;
      if (!peer) {
        absent.push_back(rank);
      } else {
        peers_[rank] = *peer;
      }
    }
    if (absent.empty()) return true;
    findings_.push_back(failed(
        "ranks",
        fmt::format("{} of {} came, missing {}", peers_.size(), identity_.size, rank_list(absent)),
        "look at why these did not start, or reach the rendezvous"));
    return false;
  }

  Result<PeerProbe> probe(int rank) const {
    Hello hello;
    hello.purpose = Purpose::kData;
    hello.job = settings_.job;
    hello.run = settings_.job;
    hello.rank = identity_.rank;
    auto socket = dial(peers_.at(rank).endpoint, settings_.secret, hello, deadline_in(kReachLimit));
    if (!socket) return fail(socket.error());
    return PeerProbe(std::move(*socket));
  }

  void reach_everybody() {
    std::string problems;
    for (const auto& [rank, peer] : peers_) {
      if (rank == identity_.rank) continue;
      const auto reached = probe(rank);
      if (reached) continue;
      problems += fmt::format("{}rank {} on {} ({}): {}", problems.empty() ? "" : "; ", rank,
                              peer.host, peer.endpoint.to_string(), reached.error().message());
    }
    if (problems.empty()) {
      findings_.push_back(
          pass("reachability", fmt::format("all {} ranks can be reached", identity_.size)));
    } else {
      findings_.push_back(
          failed("reachability", "not reached: " + problems,
                 "open the ports (--ports 30000-30100 fixes them) in the firewall, or name another "
                 "interface"));
    }
  }

  void compare_clocks() {
    if (identity_.rank == 0) return;
    const auto to = probe(0);
    const auto ahead = to ? to->clock_ahead(deadline_) : Result<int64_t>(fail(to.error()));
    if (!ahead) return;  // told as unreachable
    const double seconds = static_cast<double>(*ahead) * 1e-9;
    if (std::abs(seconds) <= kLargestSkew) {
      findings_.push_back(pass("clock", "within a second of rank 0's"));
    } else {
      findings_.push_back(warn("clock",
                               fmt::format("{:.1f} s {} rank 0's", std::abs(seconds),
                                           seconds > 0 ? "behind" : "ahead of"),
                               "logs are hard to compare; synchronise the clocks (NTP)"));
    }
  }

  // The first rank of each host measures, one after the other, so that nobody shares a link.
  void measure_links() {
    for (const auto& [rank, peer] : peers_) {
      if (rank == 0) continue;
      if (rank == identity_.rank) {
        if (is_first_of_its_host()) measure_link();
        mark("measured", "1");
        return;
      }
      if (rank < identity_.rank) await("measured", rank);
    }
  }

  bool is_first_of_its_host() const {
    const std::string& mine = peers_.at(identity_.rank).endpoint.host;
    for (const auto& [rank, peer] : peers_) {
      if (peer.endpoint.host == mine) return rank == identity_.rank;
    }
    return false;
  }

  void measure_link() {
    const auto to = probe(0);
    const auto rate = to ? to->rate(deadline_) : Result<double>(fail(to.error()));
    if (!rate) return;
    const double gigabits = *rate * 8e-9;
    const std::string found =
        fmt::format("{:.2f} Gbit/s to rank 0 on {}", gigabits, peers_[0].host);
    if (gigabits >= 0.5) {
      findings_.push_back(pass("link", found));
    } else {
      findings_.push_back(warn("link", found,
                               "gradients will wait for it; is it the right "
                               "interface?"));
    }
  }

  static constexpr const char* kRendezvousTodo =
      "check its address, port and permissions; all ranks must reach it";

  const Settings& settings_;
  const Identity identity_;
  Registry& registry_;
  const Deadline deadline_;
  std::vector<Finding> findings_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<PeerService> service_;
  std::map<int, Peer> peers_;
};

}  // namespace

std::vector<Finding> check_group(const Settings& settings, const Identity& identity,
                                 Registry& registry) {
  return GroupCheck(settings, identity, registry).run();
}

Finding check_exchange(const Settings& settings, const Identity& identity, Registry& registry) {
  const std::string check = "exchange by " + settings.backend;
  Settings mine = settings;
  mine.rank = identity.rank;
  mine.size = identity.size;
  const auto broken = [&](const Error& error) {
    return failed(check, error.message(), "see what the other ranks and checks say");
  };
  auto store = KVStore::create(mine, registry);
  if (!store) return broken(store.error());
  constexpr size_t kCount = 100'000;
  std::vector<float> values(kCount, static_cast<float>(identity.rank + 1));
  const Tensor tensor{values.data(), DType::kFloat32, {static_cast<int64_t>(kCount)}};
  Work work = (*store)->pushpull("check", std::span(&tensor, 1), std::span(&tensor, 1));
  if (auto ok = work.wait(); !ok) return broken(ok.error());
  const auto n = static_cast<float>(identity.size);
  const float expected = n * (n + 1) / 2;
  for (const float value : values) {
    if (value != expected) {
      return failed(check, fmt::format("the sum is {} where {} is right", value, expected),
                    "report this, with the processor's and the network card's model");
    }
  }
  if (auto ok = (*store)->close(); !ok) return broken(ok.error());
  return pass(check, fmt::format("{} ranks summed {} values", identity.size, kCount));
}

}  // namespace pushpull::launcher
