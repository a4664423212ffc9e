#include "backends/mpi/mpi_rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace pushpull {

namespace {

class MpiRendezvous : public Rendezvous {
 public:
  MpiRendezvous(MpiProcess& process, std::string job)
      : process_(process), job_(std::move(job)), subject_("advert of job " + job_) {}

  Result<void> publish(const Advert& advert, Deadline deadline) override {
    auto mailbox = process_.mailbox(deadline);
    if (!mailbox) return fail(mailbox.error());
    const std::string text = advert.encode();
    for (int rank = 0; rank < process_.size(); ++rank) {
      if (rank == process_.rank()) continue;
      if (auto sent = (*mailbox)->send(rank, subject_, text); !sent) return sent;
    }
    return {};
  }

  Result<Advert> find(const std::string& known_run, Deadline deadline) override {
    auto mailbox = process_.mailbox(deadline);
    if (!mailbox) return fail(mailbox.error());
    for (;;) {
      auto text = (*mailbox)->take(0, subject_, deadline);
      if (!text) return fail(text.error());
      if (!*text) return fail(nothing_came(**mailbox));
      auto advert = Advert::decode(**text);
      if (!advert || advert->run != known_run) return advert;
    }
  }

  // A run under MPI is one start of mpirun: nobody can replace it.
  Result<void> still_current(Deadline) override { return {}; }
  void withdraw() override {}

  bool trusted() const override { return true; }
  std::string description() const override { return "MPI"; }

 private:
  Error nothing_came(const MpiMailbox& mailbox) const {
    const auto others = mailbox.waiting(0);
    std::string message = fmt::format(
        "rank 0 has not created a store of job '{}' in time (rank {} waited for it over MPI)", job_,
        process_.rank());
    if (!others.empty()) message += fmt::format("; what it did send: {}", fmt::join(others, ", "));
    return Error(ErrorCode::kTimeout, std::move(message)).at_rank(0);
  }

  MpiProcess& process_;
  const std::string job_;
  const std::string subject_;
};

}  // namespace

std::unique_ptr<Rendezvous> make_mpi_rendezvous(MpiProcess& process, std::string job) {
  return std::make_unique<MpiRendezvous>(process, std::move(job));
}

}  // namespace pushpull
