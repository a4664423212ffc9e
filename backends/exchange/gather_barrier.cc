#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "backends/exchange/forms.h"

namespace pushpull {
namespace {

constexpr size_t kPiece = size_t{64} << 20;  // lengths stay far from what a 32-bit count can hold

using Tickets = std::vector<PointToPoint::Ticket>;

template <class Start>
Result<void> in_pieces(size_t bytes, Tickets& tickets, Start start) {
  for (size_t done = 0; done < bytes; done += kPiece) {
    auto ticket = start(done, std::min(kPiece, bytes - done));
    if (!ticket) return fail(ticket.error());
    tickets.push_back(*ticket);
  }
  return {};
}

}  // namespace

Result<void> allgather_direct(PointToPoint& links, const void* in, void* out,
                              std::span<const size_t> sizes) {
  const int n = links.size();
  const int rank = links.rank();
  std::vector<size_t> starts(sizes.size());
  std::exclusive_scan(sizes.begin(), sizes.end(), starts.begin(), size_t{0});
  const auto place = [&](int r) {
    return static_cast<char*>(out) + starts[static_cast<size_t>(r)];
  };
  const auto length = [&](int r) { return sizes[static_cast<size_t>(r)]; };
  Tickets tickets;
  for (int step = 1; step < n; ++step) {
    const int from = (rank - step + n) % n;
    auto ok = in_pieces(length(from), tickets, [&](size_t at, size_t bytes) {
      return links.recv(from, place(from) + at, bytes);
    });
    if (!ok) return ok;
  }
  for (int step = 1; step < n; ++step) {
    const int to = (rank + step) % n;
    auto ok = in_pieces(length(rank), tickets, [&](size_t at, size_t bytes) {
      return links.send(to, static_cast<const char*>(in) + at, bytes);
    });
    if (!ok) return ok;
  }
  if (length(rank) != 0 && in != place(rank)) std::memmove(place(rank), in, length(rank));
  for (const auto ticket : tickets)
    if (auto ok = links.wait(ticket); !ok) return ok;
  return {};
}

Result<void> barrier_rounds(PointToPoint& links) {
  const int n = links.size();
  const int rank = links.rank();
  for (int distance = 1; distance < n; distance *= 2) {
    auto receive = links.recv((rank - distance + n) % n, nullptr, 0);
    if (!receive) return fail(receive.error());
    auto send = links.send((rank + distance) % n, nullptr, 0);
    if (!send) return fail(send.error());
    if (auto ok = links.wait(*receive); !ok) return ok;
    if (auto ok = links.wait(*send); !ok) return ok;
  }
  return {};
}

}  // namespace pushpull
