#include "backends/rendezvous/redis/resolver.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "core/error.h"

namespace pushpull::redis {

namespace {

using Answer = tl::expected<std::vector<Address>, Resolver::Failure>;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

tl::unexpected<Resolver::Failure> failed(bool timed_out, std::string reason) {
  return tl::unexpected(Resolver::Failure{timed_out, std::move(reason)});
}

Answer look_up(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code == EAI_SYSTEM) return failed(false, errno_text(errno));
  if (code != 0) return failed(false, gai_strerror(code));
  const std::unique_ptr<addrinfo, FreeAddresses> owner(list);
  std::vector<Address> addresses;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    if (a->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address address;
    std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
    address.length = a->ai_addrlen;
    addresses.push_back(address);
  }
  if (addresses.empty()) return failed(false, "no address");
  return addresses;
}

// Blocks every signal while a thread is started, so that the new one never runs the program's
// handlers.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

bool Address::loopback() const {
  if (family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  if (family() != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  if (IN6_IS_ADDR_LOOPBACK(&v6)) return true;
  return IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127;
}

struct Resolver::Pending {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Answer> answer;
};

Answer Resolver::resolve(const std::string& host, uint16_t port, Deadline deadline) {
  if (auto numeric = look_up(host, port, AI_NUMERICHOST)) return numeric;
  if (!pending_) {
    auto pending = std::make_shared<Pending>();
    const SignalsBlocked blocked;
    try {
      std::thread([pending, host, port] {
        Answer answer = look_up(host, port, 0);
        const std::scoped_lock lock(pending->mutex);
        pending->answer = std::move(answer);
        pending->changed.notify_all();
      }).detach();
    } catch (const std::system_error& error) {
      return failed(false, error.what());
    }
    pending_ = std::move(pending);
  }
  std::unique_lock lock(pending_->mutex);
  const auto answered = [this] { return pending_->answer.has_value(); };
  if (!pending_->changed.wait_until(lock, deadline, answered)) {
    return failed(true, "no answer from the name service in time");
  }
  Answer answer = std::move(*pending_->answer);
  lock.unlock();
  pending_.reset();
  return answer;
}

}  // namespace pushpull::redis
