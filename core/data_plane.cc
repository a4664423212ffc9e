#include "core/data_plane.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace pushpull {
namespace {

class Connecting {
 public:
  Connecting(const DataPlane& plane, Group& group) : plane_(plane), group_(group) {}

  Result<std::unique_ptr<Collective>> run();

 private:
  bool may_share() const;
  Result<void> share_memory();
  Result<void> agree_on_layout();
  Result<std::unique_ptr<Collective>> connect_across();
  Result<std::unique_ptr<Collective>> join();
  void say_how() const;

  Group part(const std::vector<int>& ranks) const;
  Result<std::unique_ptr<Collective>> connect(Backend& backend, Group& part,
                                              Deadline deadline) const;
  const Member& me() const { return group_.members[static_cast<size_t>(group_.rank)]; }
  bool insists() const { return plane_.settings.local == "shm"; }

  const DataPlane& plane_;
  Group& group_;
  std::vector<int> candidates_;  // with this rank
  std::vector<std::function<void()>> shared_control_;  // calls of plane_.share_control
  Stages stages_;
};

// These ranks as a group of their own.
Group Connecting::part(const std::vector<int>& ranks) const {
  Group part;
  part.job = group_.job;
  part.run = group_.run;
  part.generation = group_.generation;
  part.secret = group_.secret;
  part.given_up = [&inbox = plane_.inbox] { return inbox.failure(); };
  for (const int r : ranks) {
    if (r == group_.rank) part.rank = part.size();
    part.members.push_back(group_.members[static_cast<size_t>(r)]);
  }
  return part;
}

// Errors name ranks as the whole group does.
Result<std::unique_ptr<Collective>> Connecting::connect(Backend& backend, Group& part,
                                                        Deadline deadline) const {
  auto collective = backend.connect(part, plane_.settings, deadline);
  if (collective) return collective;
  Error error = collective.error();
  // What the coordinator said has the whole group's ranks already.
  const bool own_words = !plane_.inbox.failure().has_value();
  if (own_words && error.rank() >= 0 && error.rank() < part.size()) {
    const Member& culprit = part.members[static_cast<size_t>(error.rank())];
    error.at_rank(culprit.rank, culprit.host);
  }
  return fail(std::move(error));
}

Result<std::unique_ptr<Collective>> Connecting::run() {
  if (group_.size() == 1) {
    Group alone = part({0});
    return connect(plane_.backend, alone, plane_.deadline);
  }
  if (auto shared = share_memory(); !shared) return fail(shared.error());
  if (auto agreed = agree_on_layout(); !agreed) return fail(agreed.error());
  say_how();
  const Layout& layout = group_.layout;
  if (layout.hosts() == 1) return std::move(stages_.local);
  if (layout.carries(group_.rank)) {
    auto across = connect_across();
    if (!across) return across;
    stages_.across = std::move(*across);
  }
  if (layout.hosts() == layout.ranks()) return std::move(stages_.across);
  return join();
}

bool Connecting::may_share() const {
  if (plane_.settings.local == "backend" || candidates_.size() < 2) return false;
  // MPI_Allreduce is for all ranks that MPI started.
  return plane_.settings.exchange != "mpi" || candidates_.size() == group_.members.size();
}

Result<void> Connecting::share_memory() {
  const std::vector<int> hosts = candidate_hosts(group_.members);
  for (int r = 0; r < group_.size(); ++r)
    if (hosts[static_cast<size_t>(r)] == hosts[static_cast<size_t>(group_.rank)])
      candidates_.push_back(r);
  if (may_share()) {
    Group local = part(candidates_);
    local.given_up = [&inbox = plane_.inbox]() -> std::optional<Error> {
      if (auto failure = inbox.failure()) return failure;
      if (!inbox.knows_hosts()) return std::nullopt;
      return Error(ErrorCode::kUnavailable, "another rank of this host cannot share memory");
    };
    local.shares = [this](int first, int other, std::byte* memory, std::shared_ptr<void> owner) {
      if (first == 0)
        shared_control_.emplace_back([this, other, memory, owner = std::move(owner)] {
          plane_.share_control(other, memory, owner);
        });
    };
    auto shm = plane_.registry.backend("shm");
    // There has to be time left to do without.
    const auto left = (plane_.deadline - Clock::now()) / 2;
    auto made = shm ? connect(**shm, local, Clock::now() + left)
                    : Result<std::unique_ptr<Collective>>(fail(shm.error()));
    if (made)
      stages_.local = std::move(*made);
    else if (auto failure = plane_.inbox.failure())
      return fail(std::move(*failure));
    else if (insists())
      return fail(made.error());
    else
      plane_.logger.warning(
          fmt::format("{}; the ranks of this host exchange through the backend, which is slower "
                      "(PUSHPULL_LOCAL=backend does so without trying)",
                      made.error().message()));
  }
  const FromRank report = LocalMemory{stages_.local != nullptr || candidates_.size() == 1};
  plane_.link.send({&report, 1});
  return {};
}

Result<void> Connecting::agree_on_layout() {
  auto hosts = plane_.inbox.wait_for_hosts(plane_.deadline);
  if (!hosts) return fail(hosts.error());
  if (hosts->size() != group_.members.size())
    return fail(ErrorCode::kAborted, "the coordinator speaks of hosts of another group");
  group_.layout = Layout(*hosts);
  const size_t here = group_.layout.ranks_of(group_.layout.host_of(group_.rank)).size();
  if (here == 1) stages_.local.reset();
  if (here > 1 && (stages_.local == nullptr || here != candidates_.size()))
    return fail(ErrorCode::kAborted, "the coordinator has ranks share memory that do not");
  if (here == 1 && insists() && candidates_.size() > 1)
    return fail(ErrorCode::kUnavailable,
                "PUSHPULL_LOCAL=shm asks for shared memory, which another rank of this host cannot "
                "share or was told not to; PUSHPULL_LOCAL=auto on every rank does without");
  if (here > 1)
    for (const auto& share : shared_control_) share();
  return {};
}

Result<std::unique_ptr<Collective>> Connecting::connect_across() {
  const std::vector<int> ranks = group_.layout.counterparts(group_.layout.local_rank(group_.rank));
  Group across = part(ranks);
  across.layout = Layout::apart(across.size());
  std::unique_ptr<Mesh> mesh;
  if (plane_.mesh != nullptr) mesh = plane_.mesh->among(ranks);
  across.mesh = mesh.get();
  return connect(plane_.backend, across, plane_.deadline);
}

Result<std::unique_ptr<Collective>> Connecting::join() {
  auto backend = plane_.registry.backend("hierarchical");
  if (!backend) return fail(backend.error());
  Group whole = group_;
  whole.stages = &stages_;
  return (*backend)->connect(whole, plane_.settings, plane_.deadline);
}

void Connecting::say_how() const {
  if (group_.rank != 0 || !plane_.logger.enabled(LogLevel::kInfo)) return;
  const Layout& layout = group_.layout;
  const std::string& local = plane_.settings.local;
  if (layout.hosts() == 1)
    return plane_.logger.info(fmt::format(
        "all {} ranks are on {} and exchange through shared memory (PUSHPULL_LOCAL={}); "
        "backend {} is not used for it",
        layout.ranks(), me().host, local, plane_.settings.backend));
  if (layout.hosts() == layout.ranks())
    return plane_.logger.info(
        fmt::format("{} ranks exchange through backend {} (PUSHPULL_LOCAL={})", layout.ranks(),
                    plane_.settings.backend, local));
  plane_.logger.info(fmt::format(
      "{} ranks on {} hosts exchange through shared memory and, {} of each host, through "
      "backend {} (PUSHPULL_LOCAL={})",
      layout.ranks(), layout.hosts(), layout.carriers(), plane_.settings.backend, local));
}

}  // namespace

Result<std::unique_ptr<Collective>> connect_data_plane(const DataPlane& plane, Group& group) {
  return Connecting(plane, group).run();
}

}  // namespace pushpull
