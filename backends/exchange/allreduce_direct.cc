// Reduce-scatter and allgather, each in one step, as a pipeline over the messages of the slices.
//
// Tick k of the pipeline: contribute message k of every other slice to its owner, sum message k -
// kSum of our own slice and share the result, and finish message k - kSum - kShare, whose results
// have come in. Between two ranks the messages of a tick go in a fixed order: contribution, then
// result.
#include <algorithm>
#include <vector>

#include "backends/exchange/forms.h"

namespace pushpull {
namespace {

constexpr ptrdiff_t kSum = 2;    // ticks between contributing and summing
constexpr ptrdiff_t kShare = 1;  // ticks between sharing a result and having the others'
constexpr ptrdiff_t kAhead = 1;  // ticks that receives are posted ahead; less than kSum
constexpr ptrdiff_t kTicks = kAhead + kSum + kShare + 1;  // that a message is in the pipeline

class Direct {
 public:
  explicit Direct(ExchangeCall& call) : call_(call), links_(call.links), n_(call.size()) {}

  Result<void> run();

 private:
  using Ticket = ExchangeCall::Ticket;

  // What goes on with one peer about message q of the slices.
  struct Traffic {
    Ticket contribution_out = 0, contribution_in = 0;  // theirs: of our slice
    Ticket result_out = 0, result_in = 0;
    char* contribution_out_buffer = nullptr;
    char* contribution_in_buffer = nullptr;
    char* result_in_buffer = nullptr;
  };

  const Stream& slice(int s) const { return call_.work.streams[static_cast<size_t>(s)]; }
  bool has(int s, ptrdiff_t q) const {
    return q >= 0 && q < static_cast<ptrdiff_t>(slice(s).size());
  }
  const Message& message(int s, ptrdiff_t q) const { return slice(s)[static_cast<size_t>(q)]; }
  Traffic& traffic(ptrdiff_t q, int peer) {
    return traffic_[static_cast<size_t>(q % kTicks * n_ + peer)];
  }
  char*& result_buffer(ptrdiff_t q) { return result_buffers_[static_cast<size_t>(q % kTicks)]; }

  Result<void> post_receives(ptrdiff_t k);
  Result<void> post_contribution(ptrdiff_t q, int peer);
  Result<void> post_result(ptrdiff_t q, int peer);
  Result<void> contribute(ptrdiff_t q);
  Result<void> sum_and_share(ptrdiff_t q);
  Result<void> finish(ptrdiff_t q);
  Result<void> finish_slice(ptrdiff_t q, int peer);

  ExchangeCall& call_;
  PointToPoint& links_;
  const int n_;
  std::vector<Traffic> traffic_;
  std::vector<char*> result_buffers_;
  std::vector<const char*> others_;
};

Result<void> Direct::run() {
  auto& streams = call_.work.streams;
  streams.resize(static_cast<size_t>(n_));
  size_t longest = 0;
  for (int s = 0; s < n_; ++s) {
    plan_slice(call_.parts, s, n_, call_.chunk_bytes, streams[static_cast<size_t>(s)]);
    longest = std::max(longest, slice(s).size());
  }
  call_.begin();
  traffic_.assign(static_cast<size_t>(kTicks * n_), {});
  result_buffers_.assign(static_cast<size_t>(kTicks), nullptr);

  for (ptrdiff_t k = 0; k < kAhead; ++k)
    if (auto ok = post_receives(k); !ok) return ok;
  const auto ticks = static_cast<ptrdiff_t>(longest) + kSum + kShare;
  for (ptrdiff_t k = 0; k < ticks; ++k) {
    if (auto ok = post_receives(k + kAhead); !ok) return ok;
    if (auto ok = contribute(k); !ok) return ok;
    if (auto ok = sum_and_share(k - kSum); !ok) return ok;
    if (auto ok = finish(k - kSum - kShare); !ok) return ok;
  }
  return {};
}

// In the order in which every peer sends in its tick k.
Result<void> Direct::post_receives(ptrdiff_t k) {
  for (int step = 1; step < n_; ++step) {
    const int peer = call_.peer(-step);
    if (auto ok = post_contribution(k, peer); !ok) return ok;
    if (auto ok = post_result(k - kSum, peer); !ok) return ok;
  }
  return {};
}

Result<void> Direct::post_contribution(ptrdiff_t q, int peer) {
  if (!has(call_.rank(), q)) return {};
  Traffic& t = traffic(q, peer);
  t.contribution_in_buffer = call_.work.pool.take();
  auto ticket = links_.recv(peer, t.contribution_in_buffer, message(call_.rank(), q).bytes);
  if (!ticket) return fail(ticket.error());
  t.contribution_in = *ticket;
  return {};
}

Result<void> Direct::post_result(ptrdiff_t q, int peer) {
  if (!has(peer, q)) return {};
  Traffic& t = traffic(q, peer);
  // In place, the result goes where our contribution comes from.
  if (auto ok = links_.wait(t.contribution_out); !ok) return ok;
  call_.work.pool.give_back(t.contribution_out_buffer);
  const Message& m = message(peer, q);
  char* place = call_.output_place(slice(peer), m, t.result_in_buffer);
  auto ticket = links_.recv(peer, place, m.bytes);
  if (!ticket) return fail(ticket.error());
  t.result_in = *ticket;
  return {};
}

Result<void> Direct::contribute(ptrdiff_t q) {
  for (int step = 1; step < n_; ++step) {
    const int owner = call_.peer(step);
    if (!has(owner, q)) continue;
    Traffic& t = traffic(q, owner);
    const Message& m = message(owner, q);
    const char* from = call_.own_input(slice(owner), m, t.contribution_out_buffer);
    auto ticket = links_.send(owner, from, m.bytes);
    if (!ticket) return fail(ticket.error());
    t.contribution_out = *ticket;
  }
  return {};
}

Result<void> Direct::sum_and_share(ptrdiff_t q) {
  if (!has(call_.rank(), q)) return {};
  const Stream& own = slice(call_.rank());
  const Message& m = message(call_.rank(), q);
  others_.clear();
  for (int step = 1; step < n_; ++step) {
    Traffic& t = traffic(q, call_.peer(step));
    if (auto ok = links_.wait(t.contribution_in); !ok) return ok;
    others_.push_back(t.contribution_in_buffer);
  }
  call_.sum(own, m, others_);
  for (int step = 1; step < n_; ++step)
    call_.work.pool.give_back(traffic(q, call_.peer(step)).contribution_in_buffer);
  const char* from = call_.own_output(own, m, result_buffer(q));
  for (int step = 1; step < n_; ++step) {
    const int peer = call_.peer(step);
    auto ticket = links_.send(peer, from, m.bytes);
    if (!ticket) return fail(ticket.error());
    traffic(q, peer).result_out = *ticket;
  }
  return {};
}

Result<void> Direct::finish(ptrdiff_t q) {
  for (int step = 1; step < n_; ++step)
    if (auto ok = finish_slice(q, call_.peer(-step)); !ok) return ok;
  if (!has(call_.rank(), q)) return {};
  for (int step = 1; step < n_; ++step)
    if (auto ok = links_.wait(traffic(q, call_.peer(step)).result_out); !ok) return ok;
  call_.work.pool.give_back(result_buffer(q));
  call_.ended(slice(call_.rank()), message(call_.rank(), q));
  return {};
}

Result<void> Direct::finish_slice(ptrdiff_t q, int peer) {
  if (!has(peer, q)) return {};
  Traffic& t = traffic(q, peer);
  if (auto ok = links_.wait(t.result_in); !ok) return ok;
  const Message& m = message(peer, q);
  if (m.packed()) call_.unpack_outputs(slice(peer), m, t.result_in_buffer);
  call_.work.pool.give_back(t.result_in_buffer);
  call_.ended(slice(peer), m);
  return {};
}

}  // namespace

Result<void> allreduce_direct(ExchangeCall& call) { return Direct(call).run(); }

}  // namespace pushpull
