// Partial sums travel once around the ring, then the results do.
//
// Messages go in rounds of kGroup per slice. In step t < N-1 of a round a rank sends its right
// neighbour the partial sums of slice rank-1-t, in step N-1+t the results of slice rank-t: what it
// got from the left in the step before. So a send depends on the receive kGroup messages earlier,
// adding overlaps with sending, and the first step of the next round, which depends on nothing,
// fills the end of a round.
#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "backends/exchange/forms.h"

namespace pushpull {
namespace {

constexpr size_t kGroup = 4;

// Message q of a slice, travelling from one rank to its right neighbour.
struct Hop {
  int step = 0;
  int slice = 0;
  size_t q = 0;
};

// What rank `from` sends to its right, in order.
class Hops {
 public:
  Hops(const std::vector<Stream>& streams, int from)
      : streams_(streams), n_(static_cast<int>(streams.size())), from_(from) {
    for (const Stream& stream : streams) longest_ = std::max(longest_, stream.size());
  }

  std::optional<Hop> next() {
    while (round_ < longest_) {
      const size_t q = round_ + index_;
      const Hop hop{step_, slice(step_), q};
      advance();
      if (q < streams_[static_cast<size_t>(hop.slice)].size()) return hop;
    }
    return std::nullopt;
  }

 private:
  int slice(int step) const {
    const int back = step < n_ - 1 ? step + 1 : step - (n_ - 1);
    return ((from_ - back) % n_ + n_) % n_;
  }
  void advance() {
    if (++index_ < kGroup) return;
    index_ = 0;
    if (++step_ < 2 * (n_ - 1)) return;
    step_ = 0;
    round_ += kGroup;
  }

  const std::vector<Stream>& streams_;
  const int n_;
  const int from_;
  size_t longest_ = 0;
  size_t round_ = 0;
  int step_ = 0;
  size_t index_ = 0;
};

class Ring {
 public:
  explicit Ring(ExchangeCall& call)
      : call_(call),
        links_(call.links),
        n_(call.size()),
        left_(call.peer(-1)),
        right_(call.peer(1)) {}

  Result<void> run();

 private:
  using Ticket = ExchangeCall::Ticket;
  struct Incoming {
    Hop hop;
    Ticket ticket;
    char* buffer;  // null: straight into the output
  };
  struct Outgoing {
    Hop hop;
    Ticket ticket;
    char* buffer;  // null: straight out of the input or output
  };

  bool carries_result(const Hop& hop) const { return hop.step >= n_ - 1; }
  bool is_last(const Hop& hop) const { return hop.step == 2 * (n_ - 1) - 1; }
  const Stream& stream(const Hop& hop) const {
    return call_.work.streams[static_cast<size_t>(hop.slice)];
  }
  const Message& message(const Hop& hop) const { return stream(hop)[hop.q]; }

  void plan();
  Result<void> start(const Hop& hop);
  Result<void> pass_on(const Hop& hop);
  Result<void> send(const Hop& hop, const char* from, char* buffer);
  Result<void> reap(size_t leave);
  Result<void> post_ahead();
  Result<bool> may_post(const Hop& hop);
  Result<Incoming> consume();
  void use(Incoming& incoming);

  ExchangeCall& call_;
  PointToPoint& links_;
  const int n_;
  const int left_;
  const int right_;
  std::optional<Hops> receives_;
  std::optional<Hop> next_receive_;
  std::deque<Incoming> posted_;
  std::deque<Outgoing> sending_;
  std::vector<Ticket> first_sends_;  // per message of the slice that we send first
  std::vector<size_t> added_;        // per slice: how many messages we added our input to
};

void Ring::plan() {
  auto& streams = call_.work.streams;
  streams.resize(static_cast<size_t>(n_));
  for (int s = 0; s < n_; ++s)
    plan_slice(call_.parts, s, n_, call_.chunk_bytes, streams[static_cast<size_t>(s)]);
  call_.begin();
  added_.assign(static_cast<size_t>(n_), 0);
}

Result<void> Ring::run() {
  plan();
  receives_.emplace(call_.work.streams, left_);
  next_receive_ = receives_->next();
  Hops sends(call_.work.streams, call_.rank());
  if (auto ok = post_ahead(); !ok) return ok;
  while (const auto hop = sends.next()) {
    auto ok = hop->step == 0 ? start(*hop) : pass_on(*hop);
    if (!ok) return ok;
    if (ok = reap(kGroup + 1); !ok) return ok;
  }
  while (next_receive_ || !posted_.empty())
    if (auto last = consume(); !last) return fail(last.error());
  return reap(0);
}

Result<void> Ring::start(const Hop& hop) {
  char* buffer = nullptr;
  const char* from = call_.own_input(stream(hop), message(hop), buffer);
  if (auto ok = send(hop, from, buffer); !ok) return ok;
  first_sends_.push_back(sending_.back().ticket);
  return post_ahead();
}

// Sends on what came from the left one step before.
Result<void> Ring::pass_on(const Hop& hop) {
  for (;;) {
    auto incoming = consume();
    if (!incoming) return fail(incoming.error());
    if (is_last(incoming->hop)) continue;  // of the round before; it ends here
    char* buffer = incoming->buffer;
    const char* from = buffer;
    if (from == nullptr) from = call_.own_output(stream(hop), message(hop), buffer);
    return send(hop, from, buffer);
  }
}

Result<void> Ring::send(const Hop& hop, const char* from, char* buffer) {
  auto ticket = links_.send(right_, from, message(hop).bytes);
  if (!ticket) return fail(ticket.error());
  sending_.push_back({hop, *ticket, buffer});
  return {};
}

// Waits for the oldest sends until `leave` are under way.
Result<void> Ring::reap(size_t leave) {
  while (sending_.size() > leave) {
    Outgoing& oldest = sending_.front();
    if (auto ok = links_.wait(oldest.ticket); !ok) return ok;
    call_.work.pool.give_back(oldest.buffer);
    if (carries_result(oldest.hop)) call_.ended(stream(oldest.hop), message(oldest.hop));
    sending_.pop_front();
  }
  return {};
}

Result<void> Ring::post_ahead() {
  while (next_receive_ && posted_.size() < kGroup) {
    const Hop hop = *next_receive_;
    auto may = may_post(hop);
    if (!may) return fail(may.error());
    if (!*may) return {};
    char* buffer = nullptr;
    char* place = nullptr;
    if (carries_result(hop))
      place = call_.output_place(stream(hop), message(hop), buffer);
    else
      place = buffer = call_.work.pool.take();
    auto ticket = links_.recv(left_, place, message(hop).bytes);
    if (!ticket) return fail(ticket.error());
    posted_.push_back({hop, *ticket, buffer});
    next_receive_ = receives_->next();
  }
  return {};
}

// In place, a result goes where our input is: not before that has been sent or added.
Result<bool> Ring::may_post(const Hop& hop) {
  if (!carries_result(hop)) return true;
  if (hop.slice != left_) return hop.q < added_[static_cast<size_t>(hop.slice)];
  if (hop.q >= first_sends_.size()) return false;
  if (auto ok = links_.wait(first_sends_[hop.q]); !ok) return fail(ok.error());
  return true;
}

Result<Ring::Incoming> Ring::consume() {
  if (auto ok = post_ahead(); !ok) return fail(ok.error());
  Incoming incoming = posted_.front();
  if (auto ok = links_.wait(incoming.ticket); !ok) return fail(ok.error());
  posted_.pop_front();
  use(incoming);
  if (auto ok = post_ahead(); !ok) return fail(ok.error());
  return incoming;
}

void Ring::use(Incoming& incoming) {
  const Hop& hop = incoming.hop;
  if (!carries_result(hop)) {
    ++added_[static_cast<size_t>(hop.slice)];
    if (hop.slice != call_.rank()) return call_.add_own(stream(hop), message(hop), incoming.buffer);
    const char* partial = incoming.buffer;
    call_.sum(stream(hop), message(hop), {&partial, 1});
    call_.work.pool.give_back(incoming.buffer);
    return;
  }
  if (incoming.buffer != nullptr) call_.unpack_outputs(stream(hop), message(hop), incoming.buffer);
  if (!is_last(hop)) return;
  call_.work.pool.give_back(incoming.buffer);
  call_.ended(stream(hop), message(hop));
}

}  // namespace

Result<void> allreduce_ring(ExchangeCall& call) { return Ring(call).run(); }

}  // namespace pushpull
