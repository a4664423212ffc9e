#include "backends/hierarchical/hierarchical_collective.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/hierarchical/courier.h"
#include "backends/hierarchical/step_board.h"
#include "backends/hierarchical/step_plan.h"
#include "core/reduce.h"

namespace pushpull {
namespace {

constexpr size_t kStepBytes = 512u << 10;

const PartDone kIgnore = [](size_t) {};

StepOptions step_options(const Group& group) {
  const Layout& layout = group.layout;
  StepOptions options;
  options.hosts = layout.hosts();
  options.carriers = layout.carriers();
  options.carrier = layout.carries(group.rank) ? layout.local_rank(group.rank) : -1;
  options.default_slices = group.size();
  options.step_bytes = kStepBytes;
  return options;
}

class Hierarchical final : public Collective {
 public:
  Hierarchical(Stages stages, const Group& group)
      : local_(std::move(stages.local)),
        across_(std::move(stages.across)),
        layout_(group.layout),
        members_(group.members),
        rank_(group.rank),
        host_(layout_.host_of(rank_)),
        plan_(step_options(group)) {
    if (across_) courier_.emplace();
  }

  int rank() const override { return rank_; }
  int size() const override { return layout_.ranks(); }

  Result<void> allreduce(std::span<const Part> parts, const Reduce& reduce,
                         const PartDone& done) override;
  Result<void> broadcast(std::span<const Part> parts, int root, const PartDone& done) override;
  Result<void> allgather(const void* in, void* out, std::span<const size_t> sizes) override;
  Result<void> barrier() override;

  void abort(const Error& reason) override { static_cast<void>(stop(reason)); }

 private:
  using Stage = std::function<Result<void>(size_t step)>;
  using Between = std::function<Result<void>(std::span<const Part> parts, const PartDone& done)>;

  // Runs the plan's steps.
  Result<void> run(const PartDone& done, const Stage& gather, const Between& between,
                   const Stage& spread);
  Result<void> run_at_once(const PartDone& done, const Stage& gather, const Between& between,
                           const Stage& spread);
  Result<void> run_in_step(const PartDone& done, const Stage& gather, const Stage& spread);
  void begin_steps();
  Result<void> sum_locally(size_t step, double prescale);
  Result<void> spread(size_t step);
  void copy_own(size_t step, double prescale);

  // The first failure, with the whole group's ranks; it ends both stages.
  Error stop(Error error);
  Error why();
  Error from_local(const Error& error) const { return translated(error, here()); }
  Error from_across(const Error& error) const {
    return translated(error, layout_.counterparts(layout_.local_rank(rank_)));
  }
  Error translated(Error error, const std::vector<int>& ranks) const;
  Result<void> local(Result<void> result) {
    if (result) return result;
    return fail(stop(from_local(result.error())));
  }
  Result<void> across(Result<void> result) {
    if (result) return result;
    return fail(stop(from_across(result.error())));
  }
  const std::vector<int>& here() const { return layout_.ranks_of(host_); }

  const std::unique_ptr<Collective> local_;
  const std::unique_ptr<Collective> across_;
  const Layout layout_;
  const std::vector<Member> members_;
  const int rank_;
  const int host_;
  StepPlan plan_;
  std::vector<Part> between_;    // the plan's parts that go between hosts, of all steps
  std::vector<size_t> step_of_;  // of each of those
  StepBoard board_;
  std::mutex mutex_;
  std::optional<Error> failure_;
  std::optional<Courier> courier_;  // destroyed first: its thread uses all of the above
};

Error Hierarchical::translated(Error error, const std::vector<int>& ranks) const {
  if (error.rank() < 0 || error.rank() >= static_cast<int>(ranks.size())) return error;
  const Member& culprit = members_[static_cast<size_t>(ranks[static_cast<size_t>(error.rank())])];
  return error.at_rank(culprit.rank, culprit.host);
}

Error Hierarchical::stop(Error error) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return *failure_;
    failure_ = error;
  }
  // The board last: what it wakes would read a sum that is not there, and must find the exchange aborted.
  if (across_) across_->abort(error);
  if (local_) local_->abort(error);
  board_.stop();
  return error;
}

Error Hierarchical::why() {
  const std::lock_guard lock(mutex_);
  return failure_.value_or(Error(ErrorCode::kAborted, "the call was stopped"));
}

Result<void> Hierarchical::run(const PartDone& done, const Stage& gather, const Between& between,
                               const Stage& spread) {
  if (plan_.size() == 1) return run_at_once(done, gather, between, spread);
  begin_steps();
  if (!courier_) return run_in_step(done, gather, spread);
  courier_->give([&]() -> Result<void> {
    auto ended = between(between_, [this](size_t i) { board_.part_arrived(step_of_[i]); });
    return across(std::move(ended));
  });
  auto ended = run_in_step(done, gather, spread);
  // The caller's memory is his again only now.
  auto exchanged = courier_->wait();
  return exchanged ? ended : exchanged;
}

Result<void> Hierarchical::run_at_once(const PartDone& done, const Stage& gather,
                                       const Between& between, const Stage& spread) {
  if (auto ok = gather(0); !ok) return ok;
  if (across_)
    if (auto ok = across(between(plan_[0].across, kIgnore)); !ok) return ok;
  if (auto ok = spread(0); !ok) return ok;
  for (const size_t i : plan_[0].ends) done(i);
  return {};
}

// All sums first: the exchange wants inputs well ahead of what it gives back.
Result<void> Hierarchical::run_in_step(const PartDone& done, const Stage& gather,
                                       const Stage& spread) {
  for (size_t q = 0; q < plan_.size(); ++q) {
    if (auto ok = gather(q); !ok) return ok;
    board_.gathered(q);
  }
  for (size_t q = 0; q < plan_.size(); ++q) {
    if (!board_.await_arrived(q)) return fail(why());
    if (auto ok = spread(q); !ok) return ok;
    for (const size_t i : plan_[q].ends) done(i);
  }
  return {};
}

void Hierarchical::begin_steps() {
  between_.clear();
  step_of_.clear();
  std::vector<size_t> open(plan_.size(), 0);
  if (across_)
    for (size_t q = 0; q < plan_.size(); ++q) open[q] = plan_[q].across.size();
  board_.reset(open);
  if (!across_) return;
  for (size_t q = 0; q < plan_.size(); ++q)
    for (Part part : plan_[q].across) {
      part.ready = board_.gathered_flag(q);
      between_.push_back(part);
      step_of_.push_back(q);
    }
}

Result<void> Hierarchical::allreduce(std::span<const Part> parts, const Reduce& reduce,
                                     const PartDone& done) {
  plan_.for_sum(parts);
  const Reduce between{1.0, reduce.postscale};
  return run(
      done, [&](size_t q) { return sum_locally(q, reduce.prescale); },
      [&](auto across_parts, const PartDone& arrived) {
        return across_->allreduce(across_parts, between, arrived);
      },
      [&](size_t q) { return spread(q); });
}

Result<void> Hierarchical::sum_locally(size_t step, double prescale) {
  if (local_) return local(local_->allreduce(plan_[step].local, {prescale, 1.0}, kIgnore));
  copy_own(step, prescale);
  return {};
}

void Hierarchical::copy_own(size_t step, double prescale) {
  for (const Part& part : plan_[step].local) {
    if (part.in == part.out && prescale == 1.0) continue;
    const size_t at = part.begin * size_of(part.dtype);
    scale(part.dtype, static_cast<char*>(part.out) + at, static_cast<const char*>(part.in) + at,
          prescale, part.end - part.begin);
  }
}

Result<void> Hierarchical::spread(size_t step) {
  if (!local_) return {};
  for (int c = 0; c < plan_.carriers(); ++c) {
    const std::vector<Part>& results = plan_[step].spread[static_cast<size_t>(c)];
    if (results.empty()) continue;
    if (auto ok = local(local_->broadcast(results, c, kIgnore)); !ok) return ok;
  }
  return {};
}

Result<void> Hierarchical::broadcast(std::span<const Part> parts, int root, const PartDone& done) {
  plan_.for_broadcast(parts);
  const int from = layout_.host_of(root);
  const bool source = from == host_;
  const auto gather = [&](size_t q) -> Result<void> {
    if (!source) return {};
    if (local_) return local(local_->broadcast(plan_[q].local, layout_.local_rank(root), kIgnore));
    copy_own(q, 1.0);
    return {};
  };
  const auto between = [&](std::span<const Part> across_parts, const PartDone& arrived) {
    return across_->broadcast(across_parts, from, arrived);
  };
  return run(done, gather, between, [&](size_t q) { return source ? Result<void>() : spread(q); });
}

// Block by block to the first carriers and back.
Result<void> Hierarchical::allgather(const void* in, void* out, std::span<const size_t> sizes) {
  const auto size_of_rank = [&](int r) { return sizes[static_cast<size_t>(r)]; };
  std::vector<size_t> of_hosts;
  for (int h = 0; h < layout_.hosts(); ++h) {
    size_t bytes = 0;
    for (const int r : layout_.ranks_of(h)) bytes += size_of_rank(r);
    of_hosts.push_back(bytes);
  }
  std::vector<size_t> starts(sizes.size());
  size_t all = 0;
  for (size_t r = 0; r < sizes.size(); all += sizes[r++]) starts[r] = all;

  const size_t here_bytes = of_hosts[static_cast<size_t>(host_)];
  std::vector<char> of_host(here_bytes), by_host(all);
  if (local_) {
    std::vector<size_t> here_sizes;
    for (const int r : here()) here_sizes.push_back(size_of_rank(r));
    if (auto ok = local(local_->allgather(in, of_host.data(), here_sizes)); !ok) return ok;
  } else if (here_bytes != 0) {
    std::memcpy(of_host.data(), in, here_bytes);
  }
  if (layout_.local_rank(rank_) == 0)
    if (auto ok = across(across_->allgather(of_host.data(), by_host.data(), of_hosts)); !ok)
      return ok;
  if (local_) {
    const Part everything{by_host.data(), by_host.data(), DType::kUint8, all, 0, all};
    if (auto ok = local(local_->broadcast({&everything, 1}, 0, kIgnore)); !ok) return ok;
  }
  const char* from = by_host.data();
  for (int h = 0; h < layout_.hosts(); ++h)
    for (const int r : layout_.ranks_of(h)) {
      const size_t bytes = size_of_rank(r);
      if (bytes != 0)
        std::memcpy(static_cast<char*>(out) + starts[static_cast<size_t>(r)], from, bytes);
      from += bytes;
    }
  return {};
}

Result<void> Hierarchical::barrier() {
  if (local_)
    if (auto ok = local(local_->barrier()); !ok) return ok;
  if (layout_.local_rank(rank_) == 0)
    if (auto ok = across(across_->barrier()); !ok) return ok;
  if (local_) return local(local_->barrier());
  return {};
}

}  // namespace

std::unique_ptr<Collective> make_hierarchical(Stages stages, const Group& group, const Settings&) {
  return std::make_unique<Hierarchical>(std::move(stages), group);
}

}  // namespace pushpull
