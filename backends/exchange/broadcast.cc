#include <cstring>
#include <vector>

#include "backends/exchange/forms.h"

namespace pushpull {
namespace {

constexpr size_t kAhead = 3;  // messages that receives are posted ahead
constexpr size_t kLag = 2;    // messages that sends may lag behind
constexpr size_t kWindow = kAhead + kLag + 1;

class Broadcast {
 public:
  Broadcast(ExchangeCall& call, int root, TreeShape shape);
  Result<void> run();

 private:
  using Ticket = ExchangeCall::Ticket;
  struct Slot {
    Ticket receive = 0;
    char* buffer = nullptr;
    std::vector<Ticket> sends;
  };

  const Stream& stream() const { return call_.work.streams[0]; }
  Slot& slot(size_t q) { return slots_[q % kWindow]; }
  int rank_of(int position) const { return (root_ + position) % call_.size(); }
  Result<void> post(size_t q);
  Result<void> pass_on(size_t q);
  Result<void> finish(size_t q);
  void copy_own(const Message& message);

  ExchangeCall& call_;
  const int root_;
  int parent_ = -1;  // none for the root
  std::vector<int> children_;
  std::vector<Slot> slots_{kWindow};
};

Broadcast::Broadcast(ExchangeCall& call, int root, TreeShape shape) : call_(call), root_(root) {
  const int n = call.size();
  const int position = call.peer(-root);  // the root is at 0
  if (shape == TreeShape::kChain) {
    if (position > 0) parent_ = rank_of(position - 1);
    if (position + 1 < n) children_.push_back(rank_of(position + 1));
    return;
  }
  int below = 1;  // the lowest bit of the position; beyond all of them for the root
  while (below < n && (position & below) == 0) below <<= 1;
  if (position > 0) parent_ = rank_of(position & ~below);
  for (int bit = below >> 1; bit > 0; bit >>= 1)
    if (position + bit < n) children_.push_back(rank_of(position + bit));
}

Result<void> Broadcast::run() {
  call_.work.streams.resize(1);
  plan_broadcast(call_.parts, call_.chunk_bytes, call_.work.streams[0]);
  call_.begin();
  const size_t count = stream().size();
  for (size_t q = 0; q < std::min(kAhead, count); ++q)
    if (auto ok = post(q); !ok) return ok;
  for (size_t q = 0; q < count + kLag; ++q) {
    if (q + kAhead < count)
      if (auto ok = post(q + kAhead); !ok) return ok;
    if (q < count)
      if (auto ok = pass_on(q); !ok) return ok;
    if (q >= kLag)
      if (auto ok = finish(q - kLag); !ok) return ok;
  }
  return {};
}

Result<void> Broadcast::post(size_t q) {
  if (parent_ < 0) return {};
  const Message& m = stream()[q];
  char* place = call_.output_place(stream(), m, slot(q).buffer);
  auto ticket = call_.links.recv(parent_, place, m.bytes);
  if (!ticket) return fail(ticket.error());
  slot(q).receive = *ticket;
  return {};
}

Result<void> Broadcast::pass_on(size_t q) {
  const Message& m = stream()[q];
  Slot& s = slot(q);
  const char* from = nullptr;
  if (parent_ < 0) {
    from = call_.own_input(stream(), m, s.buffer);
  } else {
    if (auto ok = call_.links.wait(s.receive); !ok) return ok;
    from = s.buffer != nullptr ? s.buffer : call_.out(stream().segments(m)[0]);
  }
  for (int child : children_) {
    auto ticket = call_.links.send(child, from, m.bytes);
    if (!ticket) return fail(ticket.error());
    s.sends.push_back(*ticket);
  }
  if (parent_ < 0)
    copy_own(m);
  else if (s.buffer != nullptr)
    call_.unpack_outputs(stream(), m, s.buffer);
  return {};
}

void Broadcast::copy_own(const Message& message) {
  for (const Segment& s : stream().segments(message))
    if (call_.in(s) != call_.out(s)) std::memcpy(call_.out(s), call_.in(s), call_.bytes(s));
}

Result<void> Broadcast::finish(size_t q) {
  Slot& s = slot(q);
  for (const Ticket ticket : s.sends)
    if (auto ok = call_.links.wait(ticket); !ok) return ok;
  s.sends.clear();
  call_.work.pool.give_back(s.buffer);
  call_.ended(stream(), stream()[q]);
  return {};
}

}  // namespace

Result<void> broadcast_down(ExchangeCall& call, int root, TreeShape shape) {
  return Broadcast(call, root, shape).run();
}

}  // namespace pushpull
