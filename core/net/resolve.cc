#include "core/net/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "core/net/signals.h"

namespace pushpull {
namespace {

using std::chrono::milliseconds;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

int look_up(const Endpoint& endpoint, int flags, std::vector<SocketAddress>* found) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failed =
      getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (failed != 0) return failed;
  const std::unique_ptr<addrinfo, FreeAddresses> owner(list);
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    SocketAddress address;
    if (a->ai_addrlen > sizeof(address.storage)) continue;
    std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
    address.length = a->ai_addrlen;
    found->push_back(address);
  }
  return found->empty() ? EAI_NONAME : 0;
}

// One second per try instead of five: who asks tries again anyway, and nobody waits for a dead
// server.
void shorten_dns_timeouts() {
  if (res_init() != 0) return;
  _res.retrans = 1;
  _res.retry = 1;
}

}  // namespace

struct NameLookup::Pending {
  std::mutex mutex;
  std::condition_variable ready;
  bool done = false;
  int failed = 0;
  std::vector<SocketAddress> found;
};

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = "";
  if (getnameinfo(get(), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return text;
}

uint16_t SocketAddress::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  if (family() == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  }
  return 0;
}

std::string SocketAddress::to_string() const { return Endpoint{host(), port()}.to_string(); }

Result<SocketAddress> numeric_address(const Endpoint& endpoint) {
  std::vector<SocketAddress> found;
  if (endpoint.host.empty() || look_up(endpoint, AI_NUMERICHOST, &found) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a numeric address", endpoint.host));
  }
  return found.front();
}

NameLookup::NameLookup(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

Result<std::vector<SocketAddress>> NameLookup::find(Deadline deadline,
                                                    const std::function<bool()>& cancelled) {
  if (auto numeric = numeric_address(endpoint_)) return std::vector{*numeric};
  if (endpoint_.host.empty()) return fail(ErrorCode::kInvalidArgument, "the host name is empty");
  if (!pending_) {
    if (auto started = start(); !started) return fail(started.error());
  }
  std::unique_lock lock(pending_->mutex);
  while (!pending_->done) {
    if (cancelled && cancelled()) {
      return fail(ErrorCode::kAborted, fmt::format("resolving {} was cancelled", endpoint_.host));
    }
    const int slice = milliseconds_left(deadline, 50);
    if (slice == 0) {
      return fail(ErrorCode::kTimeout,
                  fmt::format("no answer to the question for host name {}", endpoint_.host));
    }
    pending_->ready.wait_for(lock, milliseconds(slice));
  }
  lock.unlock();
  const std::shared_ptr<Pending> answer = std::exchange(pending_, nullptr);
  if (answer->failed != 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("host name {} does not resolve ({})",
                                                     endpoint_.host, gai_strerror(answer->failed)));
  }
  return std::move(answer->found);
}

Result<void> NameLookup::start() {
  auto pending = std::make_shared<Pending>();
  const BlockSignals blocked;
  try {
    std::thread([pending, endpoint = endpoint_] {
      shorten_dns_timeouts();
      std::vector<SocketAddress> found;
      const int failed = look_up(endpoint, 0, &found);
      const std::lock_guard lock(pending->mutex);
      pending->failed = failed;
      pending->found = std::move(found);
      pending->done = true;
      pending->ready.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    return fail(ErrorCode::kUnavailable, fmt::format("no thread to resolve {} with: {}",
                                                     endpoint_.host, error.code().message()));
  }
  pending_ = std::move(pending);
  return {};
}

}  // namespace pushpull
