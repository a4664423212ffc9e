// The module libpushpull_backend_mpi.so: ranks that mpirun or srun started, over MPI.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/exchange/exchange.h"
#include "backends/mpi/mpi_collective.h"
#include "backends/mpi/mpi_point_to_point.h"
#include "backends/mpi/mpi_process.h"
#include "backends/mpi/mpi_rendezvous.h"
#include "core/backend.h"
#include "core/log.h"

namespace pushpull {
namespace {

// For MPI_Init, which waits for all processes of the job.
constexpr auto kStartLimit = std::chrono::minutes(10);

// The ranks of the group's members in MPI's world.
Result<std::vector<int>> world_ranks(const Group& group, const MpiProcess& process) {
  std::vector<int> ranks;
  for (const Member& member : group.members) ranks.push_back(member.rank);
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool known = !sorted.empty() && sorted.front() >= 0 && sorted.back() < process.size();
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  if (!known || !distinct || ranks[static_cast<size_t>(group.rank)] != process.rank())
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a group of ranks {} cannot be connected over MPI, which started {} ranks and "
                    "has this process as rank {}",
                    fmt::join(ranks, ", "), process.size(), process.rank()));
  return ranks;
}

class MpiBackend final : public Backend {
 public:
  std::string_view name() const override { return "mpi"; }

  Result<std::optional<Identity>> identity() override {
    if (auto started = process_.start(deadline_in(kStartLimit)); !started)
      return fail(started.error());
    return Identity{process_.rank(), process_.size()};
  }

  Result<std::unique_ptr<Rendezvous>> rendezvous(const std::string& job) override {
    if (auto started = process_.start(deadline_in(kStartLimit)); !started)
      return fail(started.error());
    return make_mpi_rendezvous(process_, job);
  }

  bool uses_mesh() const override { return false; }

  Result<std::unique_ptr<Collective>> connect(const Group& group, const Settings& settings,
                                              Deadline deadline) override;

 private:
  Result<int> agree_on_tag(const Group& group, const std::vector<int>& ranks, MpiMailbox& mailbox,
                           Deadline deadline);

  MpiProcess& process_ = MpiProcess::instance();
};

// The first member draws it and tells the others, each connection of a group in its turn.
Result<int> MpiBackend::agree_on_tag(const Group& group, const std::vector<int>& ranks,
                                     MpiMailbox& mailbox, Deadline deadline) {
  const std::string subject =
      fmt::format("tag of job {}, run {}, generation {}, ranks {}", group.job, group.run,
                  group.generation, fmt::join(ranks, " "));
  if (group.rank == 0) {
    const int tag = process_.draw_tag();
    for (size_t i = 1; i < ranks.size(); ++i)
      if (auto sent = mailbox.send(ranks[i], subject, std::to_string(tag)); !sent)
        return fail(sent.error());
    return tag;
  }
  auto text = mailbox.take(ranks[0], subject, deadline);
  if (!text) return fail(text.error());
  if (!*text) {
    Error error(ErrorCode::kTimeout,
                fmt::format("{} did not connect over MPI in time", group.describe(0)));
    return fail(error.at_rank(0, group.members[0].host));
  }
  int tag = 0;
  const char* const end = (*text)->data() + (*text)->size();
  if (std::from_chars((*text)->data(), end, tag).ptr != end)
    return fail(ErrorCode::kMismatch, fmt::format("{} sent '{}' over MPI where a tag was expected",
                                                  group.describe(0), **text));
  return tag;
}

Result<std::unique_ptr<Collective>> MpiBackend::connect(const Group& group,
                                                        const Settings& settings,
                                                        Deadline deadline) {
  if (auto started = process_.start(deadline); !started) return fail(started.error());
  auto ranks = world_ranks(group, process_);
  if (!ranks) return fail(ranks.error());
  auto mailbox = process_.mailbox(deadline);
  if (!mailbox) return fail(mailbox.error());
  auto tag = agree_on_tag(group, *ranks, **mailbox, deadline);
  if (!tag) return fail(tag.error());
  auto links = std::make_unique<MpiPointToPoint>(process_, (*mailbox)->communicator(), *tag,
                                                 std::move(*ranks), group, settings.stall_timeout);
  if (auto greeted = links->greet(deadline); !greeted) return fail(greeted.error());
  auto exchange = make_exchange(std::move(links), settings);
  if (settings.exchange != "mpi") return exchange;
  if (group.rank == 0)
    make_stderr_logger(parse_log_level(settings.log), "pushpull rank 0")
        ->warning(
            "exchange 'mpi' leaves sums to the MPI library: their bits may differ from those of "
            "other exchanges, group sizes and libraries");
  return make_mpi_collective(process_, std::move(exchange), group, settings, deadline);
}

std::unique_ptr<Backend> create() { return std::make_unique<MpiBackend>(); }

}  // namespace
}  // namespace pushpull

PUSHPULL_MODULE_EXPORT const pushpull::BackendModule* pushpull_backend_v1() {
  static constexpr pushpull::BackendModule kModule{pushpull::kModuleAbi, &pushpull::create};
  return &kModule;
}
