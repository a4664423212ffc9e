#include "backends/shm/shm_proof.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "core/net/hello.h"

namespace pushpull {
namespace {

// How long a rank may hear nothing before it looks whether the group was given up.
constexpr int kGlance = 50;  // ms
constexpr auto kBetweenTries = std::chrono::milliseconds(5);
// Callers that have not proven anything yet, at most; the oldest makes room.
constexpr size_t kMaxStrangers = 64;
constexpr char kGo = 1;

struct Address {
  sockaddr_un name{};
  socklen_t length = 0;
};

Result<Address> address_of(const Group& group) {
  const std::string subject = fmt::format("pushpull shared memory\n{}\n{}\n{}\n{}", group.job,
                                          group.run, group.generation, group.members[0].rank);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), group.secret.data(), static_cast<int>(group.secret.size()),
           reinterpret_cast<const unsigned char*>(subject.data()), subject.size(), digest.data(),
           &length) == nullptr)
    return fail(ErrorCode::kUnavailable, "OpenSSL cannot compute an HMAC");
  std::string name = "pushpull-";
  for (unsigned int i = 0; i < length; ++i) name += fmt::format("{:02x}", digest[i]);
  Address address;
  address.name.sun_family = AF_UNIX;  // and a zero byte: abstract, not a file
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Result<uint64_t> random_number() {
  uint64_t number = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&number), sizeof number) != 1)
    return fail(ErrorCode::kUnavailable, "OpenSSL has no random numbers");
  return number;
}

tl::unexpected<Error> system_error(const char* what) {
  return fail(ErrorCode::kUnavailable, fmt::format("{}: {}", what, errno_text(errno)));
}

Result<void> still_wanted(const Group& group) {
  if (group.given_up)
    if (auto reason = group.given_up()) return fail(std::move(*reason));
  return {};
}

// Small messages: a socket's buffer takes them whole, or the other end is broken.
bool send_all(int fd, const void* data, size_t bytes) {
  return ::send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(bytes);
}

bool send_descriptor(int fd, int descriptor) {
  char byte = kGo;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  return ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

// Invalid where none came.
Socket receive_descriptor(int fd) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  if (::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != 1) return {};
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(sizeof(int)))
    return {};
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return Socket(descriptor);
}

// --- the first rank -----------------------------------------------------------------------------

class Host {
 public:
  Host(const Group& group, const ShmSegment& segment)
      : group_(group), segment_(segment), proven_(group.members.size()) {}

  Result<void> run(Deadline deadline);

 private:
  // One caller, from its first byte to its proof.
  struct Caller {
    Caller(Socket s, std::string secret, ServerHandshake::Judge judge)
        : socket(std::move(s)), hello(std::move(secret), std::move(judge)) {}
    Socket socket;
    ServerHandshake hello;
    std::string number;  // as far as it has come
    bool gone = false;
  };

  Result<void> listen(Deadline deadline);
  void accept();
  Result<void> judge(const Hello& hello) const;
  void serve(Caller& caller);
  void greet(Caller& caller);
  void check(Caller& caller);
  Error missing() const;
  bool complete() const {
    return std::all_of(proven_.begin() + 1, proven_.end(),
                       [](const Socket& s) { return s.valid(); });
  }

  const Group& group_;
  const ShmSegment& segment_;
  Socket listener_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<Socket> proven_;  // by rank
};

Result<void> Host::listen(Deadline deadline) {
  auto address = address_of(group_);
  if (!address) return fail(address.error());
  listener_ = Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return system_error("making a Unix socket");
  const auto* name = reinterpret_cast<const sockaddr*>(&address->name);
  // The same group may be connected twice, one after the other.
  while (::bind(listener_.fd(), name, address->length) != 0) {
    if (errno != EADDRINUSE || Clock::now() >= deadline)
      return system_error("naming a Unix socket");
    if (auto wanted = still_wanted(group_); !wanted) return wanted;
    std::this_thread::sleep_for(kBetweenTries);
  }
  if (::listen(listener_.fd(), group_.size() + 16) != 0) return system_error("listen");
  return {};
}

Result<void> Host::judge(const Hello& hello) const {
  if (hello.job != group_.job || hello.run != group_.run || hello.generation != group_.generation ||
      hello.rank <= 0 || hello.rank >= group_.size())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} of job '{}', run {} does not belong to this group", hello.rank,
                            hello.job, hello.run));
  if (proven_[static_cast<size_t>(hello.rank)].valid())
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} shares the memory already", hello.rank));
  return {};
}

void Host::accept() {
  Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) return;
  if (callers_.size() >= kMaxStrangers + group_.members.size()) callers_.erase(callers_.begin());
  callers_.push_back(std::make_unique<Caller>(std::move(socket), group_.secret,
                                              [this](const Hello& h) { return judge(h); }));
  greet(*callers_.back());
}

// Sends what the hello has to say.
void Host::greet(Caller& caller) {
  std::string& output = caller.hello.output();
  if (!output.empty() && !send_all(caller.socket.fd(), output.data(), output.size()))
    caller.gone = true;
  output.clear();
}

void Host::serve(Caller& caller) {
  std::array<char, kMaxHelloBytes> buffer;
  const bool greeted = caller.hello.finished();
  const size_t wanted = greeted ? sizeof(uint64_t) - caller.number.size()
                                : std::min(caller.hello.wanted(), buffer.size());
  const ssize_t got = ::recv(caller.socket.fd(), buffer.data(), wanted, MSG_DONTWAIT);
  if (got <= 0) {
    caller.gone = got == 0 || (errno != EAGAIN && errno != EINTR);
    return;
  }
  const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
  if (greeted) {
    caller.number.append(bytes);
    if (caller.number.size() == sizeof(uint64_t)) check(caller);
    return;
  }
  if (!caller.hello.feed(bytes)) caller.gone = true;
  greet(caller);
  if (!caller.gone && caller.hello.finished())
    caller.gone = !send_descriptor(caller.socket.fd(), segment_.descriptor());
}

// Whether the caller's number is in the memory; the answer there is its complement.
void Host::check(Caller& caller) {
  const int rank = caller.hello.hello().rank;
  uint64_t number = 0;
  std::memcpy(&number, caller.number.data(), sizeof number);
  auto& proof = segment_.signals(rank).proof;
  caller.gone = true;
  if (proof[0] != number || proven_[static_cast<size_t>(rank)].valid()) return;
  proof[1] = ~number;
  proven_[static_cast<size_t>(rank)] = std::move(caller.socket);
}

Error Host::missing() const {
  for (int r = 1; r < group_.size(); ++r)
    if (!proven_[static_cast<size_t>(r)].valid())
      return Error(ErrorCode::kTimeout, fmt::format("{} did not come", group_.describe(r)))
          .at_rank(r, group_.members[static_cast<size_t>(r)].host);
  return Error(ErrorCode::kTimeout, "nobody is missing");
}

Result<void> Host::run(Deadline deadline) {
  if (auto listening = listen(deadline); !listening) return listening;
  std::vector<pollfd> polled;
  while (!complete()) {
    if (Clock::now() >= deadline) return fail(missing());
    if (auto wanted = still_wanted(group_); !wanted) return wanted;
    polled.assign(1, {listener_.fd(), POLLIN, 0});
    for (const auto& caller : callers_) polled.push_back({caller->socket.fd(), POLLIN, 0});
    ::poll(polled.data(), polled.size(), milliseconds_left(deadline, kGlance));
    for (size_t i = 1; i < polled.size(); ++i)
      if (polled[i].revents != 0) serve(*callers_[i - 1]);
    if (polled[0].revents != 0) accept();
    std::erase_if(callers_, [](const auto& caller) { return caller->gone; });
  }
  for (size_t r = 1; r < proven_.size(); ++r)
    if (!send_all(proven_[r].fd(), &kGo, 1))
      return fail(Error(ErrorCode::kPeerLost,
                        fmt::format("{} went away", group_.describe(static_cast<int>(r))))
                      .at_rank(static_cast<int>(r), group_.members[r].host));
  return {};
}

// --- the others ---------------------------------------------------------------------------------

class Guest {
 public:
  Guest(const Group& group, size_t chunk_bytes, Deadline deadline)
      : group_(group), chunk_bytes_(chunk_bytes), deadline_(deadline) {}

  Result<std::unique_ptr<ShmSegment>> run() {
    for (;;) {
      auto segment = attempt();
      if (segment || final_) return segment;
      if (Clock::now() >= deadline_) return segment;
      if (auto wanted = still_wanted(group_); !wanted) return fail(wanted.error());
      std::this_thread::sleep_for(kBetweenTries);
    }
  }

 private:
  Result<std::unique_ptr<ShmSegment>> attempt();
  Result<void> dial();
  Result<void> greet();
  Result<void> readable();
  tl::unexpected<Error> give_up(Error error) {
    final_ = true;
    return fail(std::move(error));
  }

  const Group& group_;
  const size_t chunk_bytes_;
  const Deadline deadline_;
  Socket socket_;
  bool final_ = false;  // another try would fail in the same way
};

Result<void> Guest::dial() {
  auto address = address_of(group_);
  if (!address) return give_up(address.error());
  socket_ = Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.valid()) return give_up(system_error("making a Unix socket").value());
  if (::connect(socket_.fd(), reinterpret_cast<const sockaddr*>(&address->name), address->length) !=
      0)
    return system_error("it does not answer on its Unix socket");
  return {};
}

Result<void> Guest::readable() {
  for (;;) {
    pollfd polled{socket_.fd(), POLLIN, 0};
    if (::poll(&polled, 1, milliseconds_left(deadline_, kGlance)) > 0) return {};
    if (Clock::now() >= deadline_) return fail(ErrorCode::kTimeout, "it stopped answering");
    if (auto wanted = still_wanted(group_); !wanted) return give_up(wanted.error());
  }
}

Result<void> Guest::greet() {
  Hello mine;
  mine.purpose = Purpose::kData;
  mine.job = group_.job;
  mine.run = group_.run;
  mine.generation = group_.generation;
  mine.rank = group_.rank;
  ClientHandshake hello(group_.secret, std::move(mine));
  std::array<char, kMaxHelloBytes> buffer;
  while (!hello.finished()) {
    if (!hello.output().empty() &&
        !send_all(socket_.fd(), hello.output().data(), hello.output().size()))
      return system_error("greeting it");
    hello.output().clear();
    if (auto ready = readable(); !ready) return ready;
    const size_t wanted = std::min(hello.wanted(), buffer.size());
    const ssize_t got = ::recv(socket_.fd(), buffer.data(), wanted, MSG_DONTWAIT);
    if (got <= 0) return fail(ErrorCode::kUnavailable, "it closed the connection");
    auto fed = hello.feed({buffer.data(), static_cast<size_t>(got)});
    if (fed) continue;
    final_ = hello.failure() != ClientHandshake::Failure::kBroken;
    return fail(fed.error());
  }
  return {};
}

Result<std::unique_ptr<ShmSegment>> Guest::attempt() {
  if (auto ok = dial(); !ok) return fail(ok.error());
  if (auto ok = greet(); !ok) return fail(ok.error());
  if (auto ok = readable(); !ok) return fail(ok.error());
  Socket memory = receive_descriptor(socket_.fd());
  if (!memory.valid()) return fail(ErrorCode::kUnavailable, "it sent no memory");
  auto segment = ShmSegment::open(std::move(memory), group_.size(), chunk_bytes_);
  if (!segment) return give_up(segment.error());
  auto number = random_number();
  if (!number) return give_up(number.error());
  auto& proof = segment->signals(group_.rank).proof;
  proof[0] = *number;
  if (!send_all(socket_.fd(), &*number, sizeof *number)) return system_error("answering it");
  if (auto ok = readable(); !ok) return fail(ok.error());
  char go = 0;
  if (::recv(socket_.fd(), &go, 1, MSG_DONTWAIT) != 1 || go != kGo)
    return fail(ErrorCode::kUnavailable, "it did not see the shared memory change");
  if (proof[1] != ~*number)
    return give_up(Error(ErrorCode::kUnavailable, "its answer is not in the shared memory"));
  segment->forget_descriptor();
  return std::make_unique<ShmSegment>(std::move(*segment));
}

Result<std::unique_ptr<ShmSegment>> host_memory(const Group& group, size_t chunk_bytes,
                                                Deadline deadline) {
  auto segment = ShmSegment::create(group.size(), chunk_bytes);
  if (!segment) return fail(segment.error());
  if (group.size() > 1)
    if (auto shared = Host(group, *segment).run(deadline); !shared) return fail(shared.error());
  segment->forget_descriptor();
  return std::make_unique<ShmSegment>(std::move(*segment));
}

}  // namespace

Result<std::unique_ptr<ShmSegment>> share_memory(const Group& group, size_t chunk_bytes,
                                                 Deadline deadline) {
  auto segment = group.rank == 0 ? host_memory(group, chunk_bytes, deadline)
                                 : Guest(group, chunk_bytes, deadline).run();
  if (segment) return segment;
  if (group.given_up && group.given_up()) return segment;
  const std::string who = group.rank == 0 ? "the ranks of this host" : group.describe(0);
  return fail(segment.error().with_context(fmt::format(
      "{} cannot share memory with {}; PUSHPULL_LOCAL=backend on every rank does without",
      group.describe(group.rank), who)));
}

}  // namespace pushpull
