#include "backends/hierarchical/hierarchical_collective.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "backends/hierarchical/courier.h"
#include "backends/hierarchical/step_plan.h"
#include "core/reduce.h"

namespace pushpull {
namespace {

// Steps that are summed locally ahead of those that come back from the network.
constexpr size_t kAhead = 2;
constexpr size_t kStepBytes = size_t{1} << 20;

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
    if (across_)
      courier_.emplace([this](const Error& error) { stop(from_across(error)); });
  }

  int rank() const override { return rank_; }
  int size() const override { return layout_.ranks(); }

  Result<void> allreduce(std::span<const Part> parts, const Reduce& reduce,
                         const PartDone& done) override;
  Result<void> broadcast(std::span<const Part> parts, int root, const PartDone& done) override;
  Result<void> allgather(const void* in, void* out, std::span<const size_t> sizes) override;
  Result<void> barrier() override;

  void abort(const Error& reason) override {
    if (local_) local_->abort(reason);
    if (across_) across_->abort(reason);
  }

 private:
  // Runs the plan's steps; the stages are functions of a step's number.
  template <class Gather, class Across, class Spread>
  Result<void> run(const PartDone& done, const Gather& gather, const Across& across,
                   const Spread& spread);
  template <class Gather, class Across, class Spread>
  Result<void> run_steps(const PartDone& done, const Gather& gather, const Across& across,
                         const Spread& spread);
  Result<void> sum_locally(size_t step, double prescale);
  Result<void> spread(size_t step);
  void copy_own(size_t step, double prescale);

  // The first failure, with the whole group's ranks; it ends both stages.
  Error stop(Error error);
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
  abort(error);
  return error;
}

template <class Gather, class Across, class Spread>
Result<void> Hierarchical::run(const PartDone& done, const Gather& gather, const Across& across,
                               const Spread& spread) {
  auto ended = run_steps(done, gather, across, spread);
  // The caller's memory is his again.
  if (!ended && courier_) courier_->wait_idle();
  return ended;
}

template <class Gather, class Across, class Spread>
Result<void> Hierarchical::run_steps(const PartDone& done, const Gather& gather,
                                     const Across& across, const Spread& spread) {
  const size_t steps = plan_.size();
  const bool hand_over = courier_ && steps > 1;
  const uint64_t before = courier_ ? courier_->given() : 0;
  for (size_t q = 0; q < steps + kAhead; ++q) {
    if (q < steps) {
      if (auto ok = gather(q); !ok) return ok;
      if (hand_over)
        courier_->give([&across, q] { return across(q); });
    }
    if (q < kAhead) continue;
    const size_t back = q - kAhead;
    if (hand_over) {
      if (auto ok = courier_->wait(before + back + 1); !ok) return this->across(ok);
    } else if (across_) {
      if (auto ok = this->across(across(back)); !ok) return ok;
    }
    if (auto ok = spread(back); !ok) return ok;
    for (const size_t i : plan_[back].ends) done(i);
  }
  return {};
}

Result<void> Hierarchical::allreduce(std::span<const Part> parts, const Reduce& reduce,
                                     const PartDone& done) {
  plan_.for_sum(parts);
  const Reduce between{1.0, reduce.postscale};
  return run(
      done, [&](size_t q) { return sum_locally(q, reduce.prescale); },
      [&](size_t q) { return across_->allreduce(plan_[q].across, between, kIgnore); },
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
    std::vector<Part> results = plan_[step].spread[static_cast<size_t>(c)];
    if (results.empty()) continue;
    for (Part& part : results) part.in = part.out;
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
  const auto between = [&](size_t q) { return across_->broadcast(plan_[q].across, from, kIgnore); };
  return run(done, gather, between,
             [&](size_t q) { return source ? Result<void>() : spread(q); });
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
    if (auto ok = across(across_->allgather(of_host.data(), by_host.data(), of_hosts)); !ok) return ok;
  if (local_) {
    const Part everything{by_host.data(), by_host.data(), DType::kUint8, all, 0, all};
    if (auto ok = local(local_->broadcast({&everything, 1}, 0, kIgnore)); !ok) return ok;
  }
  const char* from = by_host.data();
  for (int h = 0; h < layout_.hosts(); ++h)
    for (const int r : layout_.ranks_of(h)) {
      const size_t bytes = size_of_rank(r);
      if (bytes != 0) std::memcpy(static_cast<char*>(out) + starts[static_cast<size_t>(r)], from, bytes);
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
