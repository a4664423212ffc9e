#include "backends/exchange/forms.h"

namespace pushpull {

// Everybody sends its whole input to everybody, and sums all inputs itself, each slice in the order
// in which its owner would: the same operations on the same numbers, so the same bits everywhere.
Result<void> allreduce_small(ExchangeCall& call) {
  const int n = call.size();
  call.work.streams.resize(1);
  Stream& stream = call.work.streams[0];
  plan_all_slices(call.parts, n, stream);
  call.begin();
  if (stream.size() == 0) return {};
  const Message message = stream[0];

  std::vector<char*> inputs(static_cast<size_t>(n));
  std::vector<ExchangeCall::Ticket> tickets;
  for (int step = 1; step < n; ++step) {
    const int from = call.peer(-step);
    char*& place = inputs[static_cast<size_t>(from)];
    place = call.work.pool.take();
    auto ticket = call.links.recv(from, place, message.bytes);
    if (!ticket) return fail(ticket.error());
    tickets.push_back(*ticket);
  }
  char*& own = inputs[static_cast<size_t>(call.rank())];
  own = call.work.pool.take();
  call.pack_inputs(stream, message, own);
  for (int step = 1; step < n; ++step) {
    auto ticket = call.links.send(call.peer(step), own, message.bytes);
    if (!ticket) return fail(ticket.error());
    tickets.push_back(*ticket);
  }
  for (const ExchangeCall::Ticket ticket : tickets)
    if (auto ok = call.links.wait(ticket); !ok) return ok;

  std::vector<const void*>& ordered = call.work.inputs;
  for (const Segment& s : stream.segments(message)) {
    const size_t slice = s.first / slice_length(call.parts[s.part], n);
    ordered.clear();
    for (size_t step = 1; step <= inputs.size(); ++step)
      ordered.push_back(inputs[(slice + step) % inputs.size()] + s.at);
    call.combine(call.dtype(s), call.out(s), ordered, s.count);
    call.scale_output(s);
  }
  for (char*& buffer : inputs) call.work.pool.give_back(buffer);
  call.ended(stream, message);
  return {};
}

}  // namespace pushpull
