#include "launcher/check/peer_service.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "core/deadline.h"
#include "core/text.h"

namespace pushpull::launcher {
namespace {

using namespace std::chrono_literals;

constexpr size_t kBlock = size_t{256} << 10;
constexpr uint64_t kMostBytes = uint64_t{64} << 30;
constexpr auto kIdleLimit = 120s;

int64_t wall_clock() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// false: something else is to be done, or nothing will come any more.
bool wait_readable(const Socket& socket, const std::stop_token& stop) {
  const Deadline end = deadline_in(kIdleLimit);
  while (!stop.stop_requested() && Clock::now() < end) {
    pollfd waiting{socket.fd(), POLLIN, 0};
    if (poll(&waiting, 1, 50) > 0) return true;
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<PeerService>> PeerService::start(const std::string& address,
                                                        const PortRange& ports,
                                                        const std::string& secret,
                                                        const std::string& run) {
  std::unique_ptr<PeerService> service(new PeerService);
  Acceptor::Options options;
  options.address = address;
  options.ports = ports;
  options.secret = secret;
  options.judge = [run](const Hello& hello) -> Result<void> {
    if (hello.run == run) return {};
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("this is run {}, not {}", run, in_quotes(hello.run)));
  };
  options.accepted = [raw = service.get()](const Hello&, Socket socket) {
    const std::lock_guard lock(raw->mutex_);
    auto held = std::make_shared<Socket>(std::move(socket));
    raw->threads_.emplace_back(
        [raw, held](const std::stop_token& stop) { raw->serve(std::move(*held), stop); });
  };
  auto acceptor = Acceptor::listen(std::move(options));
  if (!acceptor) return fail(acceptor.error());
  service->acceptor_ = std::move(*acceptor);
  return service;
}

PeerService::~PeerService() { acceptor_.reset(); }

void PeerService::serve(Socket socket, const std::stop_token& stop) const {
  std::vector<char> block(kBlock);
  while (wait_readable(socket, stop)) {
    std::array<char, 9> request{};
    if (!recv_all(socket, request.data(), request.size(), deadline_in(5s))) return;
    uint64_t number = 0;
    std::memcpy(&number, request.data() + 1, sizeof(number));
    if (number > kMostBytes) return;
    for (uint64_t left = request[0] == 'D' ? number : 0; left > 0;) {
      const size_t now = std::min<uint64_t>(left, block.size());
      if (!recv_all(socket, block.data(), now, deadline_in(10s))) return;
      left -= now;
    }
    const int64_t answer = wall_clock();
    const std::string_view bytes(reinterpret_cast<const char*>(&answer), sizeof(answer));
    if (!send_all(socket, bytes, deadline_in(5s))) return;
  }
}

Result<int64_t> PeerProbe::ask(char letter, uint64_t number, Deadline deadline) const {
  std::string request(1, letter);
  request.append(reinterpret_cast<const char*>(&number), sizeof(number));
  if (auto ok = send_all(socket_, request, deadline); !ok) return fail(ok.error());
  const std::string block(kBlock, 'x');
  for (uint64_t left = letter == 'D' ? number : 0; left > 0;) {
    const size_t now = std::min<uint64_t>(left, block.size());
    if (auto ok = send_all(socket_, std::string_view(block).substr(0, now), deadline); !ok)
      return fail(ok.error());
    left -= now;
  }
  int64_t answer = 0;
  if (auto ok = recv_all(socket_, &answer, sizeof(answer), deadline); !ok) return fail(ok.error());
  return answer;
}

Result<int64_t> PeerProbe::clock_ahead(Deadline deadline) const {
  int64_t best = 0;
  int64_t quickest = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const int64_t before = wall_clock();
    const auto there = ask('T', 0, deadline);
    const int64_t after = wall_clock();
    if (!there) return there;
    if (after - before < quickest) {
      quickest = after - before;
      best = *there - (before + (after - before) / 2);
    }
  }
  return best;
}

Result<double> PeerProbe::rate(Deadline deadline) const {
  constexpr double kTarget = 0.3;
  uint64_t bytes = uint64_t{2} << 20;
  auto start = Clock::now();
  if (auto first = ask('D', bytes, deadline); !first) return fail(first.error());
  const double seconds = std::max(seconds_since(start), 1e-6);
  bytes = static_cast<uint64_t>(static_cast<double>(bytes) * kTarget / seconds);
  bytes = std::min<uint64_t>(std::max<uint64_t>(bytes, 1 << 20), uint64_t{1} << 30);
  start = Clock::now();
  if (auto second = ask('D', bytes, deadline); !second) return fail(second.error());
  return static_cast<double>(bytes) / std::max(seconds_since(start), 1e-6);
}

}  // namespace pushpull::launcher
