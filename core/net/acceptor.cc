#include "core/net/acceptor.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <future>
#include <list>
#include <thread>

#include <fmt/format.h>

#include <asio/dispatch.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/steady_timer.hpp>

#include "core/fork_guard.h"
#include "core/net/dial_attempt.h"
#include "core/net/resolve.h"
#include "core/net/signals.h"

namespace pushpull {
namespace {

using std::chrono::milliseconds;
using Descriptor = asio::posix::stream_descriptor;

constexpr Duration kHelloLimit = std::chrono::seconds(5);
constexpr size_t kMostUnfinished = 1024;
constexpr int kAcceptsInARow = 64;

size_t unfinished_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return kMostUnfinished;
  }
  return std::clamp<size_t>(limit.rlim_cur / 4, 16, kMostUnfinished);
}

// The errno of the failure, or 0 and the listening socket.
int try_listen(const SocketAddress& address, Socket* listener) {
  Socket socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return errno;
  const int on = 1;
  const int off = 0;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.family() == AF_INET6) {
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(socket.fd(), address.get(), address.length) != 0) return errno;
  if (::listen(socket.fd(), SOMAXCONN) != 0) return errno;
  *listener = std::move(socket);
  return 0;
}

Error cannot_listen(const Endpoint& where, int error_number) {
  const std::string text =
      fmt::format("cannot listen on {}: {}", where.to_string(), errno_words(error_number));
  switch (error_number) {
    case EADDRNOTAVAIL:
      return Error(ErrorCode::kInvalidArgument, text + " (it is not an address of this host)");
    case EACCES:
      return Error(ErrorCode::kInvalidArgument,
                   text + " (ports below 1024 need a privilege; choose others)");
    default:
      return Error(ErrorCode::kUnavailable, text);
  }
}

Result<Socket> listen_in_range(const std::string& host, PortRange ports) {
  for (int port = ports.first; port <= ports.last; ++port) {
    const Endpoint where{host, static_cast<uint16_t>(port)};
    auto address = numeric_address(where);
    if (!address) return fail(address.error());
    Socket listener;
    const int failed = try_listen(*address, &listener);
    if (failed == 0) return listener;
    if (failed != EADDRINUSE) return fail(cannot_listen(where, failed));
  }
  if (ports.first == ports.last) {
    return fail(cannot_listen(Endpoint{host, ports.first}, EADDRINUSE));
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("all ports from {} to {} of {} are in use; give a wider range in "
                          "PUSHPULL_PORTS",
                          ports.first, ports.last, host));
}

SocketAddress local_address(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

// The descriptors that a forked child has to close, readable without a lock.
class DescriptorTable {
 public:
  DescriptorTable() {
    for (auto& fd : fds_) fd = -1;
  }
  void add(int fd) { exchange(-1, fd); }
  void remove(int fd) { exchange(fd, -1); }
  void close_all() {
    for (auto& slot : fds_) {
      if (const int fd = slot.exchange(-1); fd >= 0) ::close(fd);
    }
  }

 private:
  void exchange(int from, int to) {
    for (auto& slot : fds_) {
      int expected = from;
      if (slot.load(std::memory_order_relaxed) == from &&
          slot.compare_exchange_strong(expected, to)) {
        return;
      }
    }
  }
  std::array<std::atomic<int>, kMostUnfinished + 2> fds_;
};

// At most one line a second; what was suppressed is counted in the next one.
class SparseLog {
 public:
  explicit SparseLog(std::shared_ptr<Logger> logger) : logger_(std::move(logger)) {}

  void add(std::string line) {
    ++waiting_;
    last_ = std::move(line);
    flush();
  }
  void flush() {
    const auto now = Clock::now();
    if (waiting_ == 0 || now < next_) return;
    next_ = now + std::chrono::seconds(1);
    if (logger_ && waiting_ == 1) logger_->warning(last_);
    if (logger_ && waiting_ > 1) {
      logger_->warning(fmt::format("{} (and {} more within the last second)", last_, waiting_ - 1));
    }
    waiting_ = 0;
  }
  // When flush() has something to say; never() where it has not.
  Deadline due() const { return waiting_ > 0 ? next_ : never(); }

 private:
  std::shared_ptr<Logger> logger_;
  uint64_t waiting_ = 0;
  std::string last_;
  Deadline next_ = {};
};

// A connection whose hello is not finished.
struct Session {
  Session(asio::io_context& io, int fd, const SocketAddress& from, const Acceptor::Options& options)
      : descriptor(io, fd), peer(from), handshake(options.secret, options.judge) {}
  Descriptor descriptor;
  SocketAddress peer;
  ServerHandshake handshake;
  Deadline expires = deadline_in(kHelloLimit);
  std::list<std::shared_ptr<Session>>::iterator place;
};

class AsioAcceptor final : public Acceptor, private ForkObserver {
 public:
  AsioAcceptor(Options options, Socket listener);
  ~AsioAcceptor() override;

  Endpoint endpoint() const override { return endpoint_; }
  void close() override;
  uint64_t refused() const override { return refused_; }
  void after_fork_in_child() override { descriptors_.close_all(); }

 private:
  using SessionPtr = std::shared_ptr<Session>;

  void run();
  void wait_for_connection();
  void accept_some();
  void pause_accepting(int error_number);
  void begin(int fd, const SocketAddress& from);
  void wait_for_bytes(const SessionPtr& session);
  void read_some(const SessionPtr& session);
  bool send_output(Session& session);
  void hand_over(const SessionPtr& session);
  void refuse(const SessionPtr& session, std::string_view why);
  void drop(const SessionPtr& session);
  void refuse_expired();
  void arm_timer();
  void close_now();

  Options options_;
  Endpoint endpoint_;
  const size_t limit_ = unfinished_limit();
  std::atomic<uint64_t> refused_ = 0;
  DescriptorTable descriptors_;
  // From here on: the acceptor's thread only, once it runs.
  SparseLog log_;
  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> keep_running_;
  Descriptor listener_;
  asio::steady_timer timer_;
  asio::steady_timer pause_;
  Deadline timer_due_ = never();
  std::list<SessionPtr> unfinished_;  // oldest first: all have the same limit
  std::thread thread_;
};

AsioAcceptor::AsioAcceptor(Options options, Socket listener)
    : options_(std::move(options)),
      log_(options_.logger),
      io_(1),
      keep_running_(io_.get_executor()),
      listener_(io_),
      timer_(io_),
      pause_(io_) {
  const SocketAddress local = local_address(listener.fd());
  endpoint_ = {local.host(), local.port()};
  descriptors_.add(listener.fd());
  listener_.assign(listener.fd());
  (void)listener.release();
  wait_for_connection();
  const BlockSignals blocked;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "pushpull-accept");
  watch();
}

AsioAcceptor::~AsioAcceptor() {
  unwatch();
  io_.stop();
  thread_.join();
  close_now();
}

void AsioAcceptor::run() {
  while (!io_.stopped()) {
    try {
      io_.run();
    } catch (const std::exception& error) {
      // Out of memory at worst: one connection less, the listener goes on.
      if (options_.logger) {
        options_.logger->error(fmt::format("accepting connections: {}", error.what()));
      }
    }
  }
}

void AsioAcceptor::close() {
  std::promise<void> done;
  asio::dispatch(io_, [&] {
    close_now();
    done.set_value();
  });
  done.get_future().wait();
}

void AsioAcceptor::close_now() {
  if (listener_.is_open()) {
    descriptors_.remove(listener_.native_handle());
    listener_.close();
  }
  while (!unfinished_.empty()) drop(unfinished_.front());
  timer_.cancel();
  pause_.cancel();
}

// ---- accepting ----

void AsioAcceptor::wait_for_connection() {
  listener_.async_wait(Descriptor::wait_read, [this](const asio::error_code& error) {
    if (!error && listener_.is_open()) accept_some();
  });
}

void AsioAcceptor::accept_some() {
  for (int i = 0; i < kAcceptsInARow; ++i) {
    SocketAddress from;
    from.length = sizeof(from.storage);
    const int fd = ::accept4(listener_.native_handle(), reinterpret_cast<sockaddr*>(&from.storage),
                             &from.length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      begin(fd, from);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return pause_accepting(errno);
    }
    // Anything else (ECONNABORTED, a network error) belongs to the connection that is gone.
  }
  if (listener_.is_open()) wait_for_connection();
}

void AsioAcceptor::pause_accepting(int error_number) {
  log_.add(fmt::format("cannot accept a connection on {} now: {}", endpoint_.to_string(),
                       errno_words(error_number)));
  // Whoever has not proved anything gives way to the rest of the process.
  for (size_t n = (unfinished_.size() + 1) / 2; n > 0; --n) {
    refuse(unfinished_.front(), "too many open files");
  }
  pause_.expires_after(milliseconds(100));
  pause_.async_wait([this](const asio::error_code& error) {
    if (!error && listener_.is_open()) wait_for_connection();
  });
}

void AsioAcceptor::begin(int fd, const SocketAddress& from) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (unfinished_.size() >= limit_) {
    refuse(unfinished_.front(), "too many connections without a hello");
  }
  Socket owner(fd);
  auto session = std::make_shared<Session>(io_, fd, from, options_);
  (void)owner.release();
  descriptors_.add(fd);
  unfinished_.push_back(session);
  session->place = std::prev(unfinished_.end());
  if (!send_output(*session)) return refuse(session, "it closed the connection at once");
  wait_for_bytes(session);
  arm_timer();
}

// ---- one connection ----

void AsioAcceptor::wait_for_bytes(const SessionPtr& session) {
  session->descriptor.async_wait(Descriptor::wait_read,
                                 [this, session](const asio::error_code& error) {
                                   if (!error && session->descriptor.is_open()) read_some(session);
                                 });
}

void AsioAcceptor::read_some(const SessionPtr& session) {
  char buffer[kMaxHelloBytes];
  while (!session->handshake.finished()) {
    const size_t wanted = std::min(session->handshake.wanted(), sizeof(buffer));
    const ssize_t got = ::recv(session->descriptor.native_handle(), buffer, wanted, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return wait_for_bytes(session);
    if (got == 0) return refuse(session, "it closed the connection during the hello");
    if (got < 0) return refuse(session, errno_words(errno));
    const auto fed = session->handshake.feed(std::string_view(buffer, static_cast<size_t>(got)));
    const bool sent = send_output(*session);
    if (!fed) return refuse(session, fed.error().message());
    if (!sent) return refuse(session, "it closed the connection during the hello");
  }
  hand_over(session);
}

// All that a hello sends fits into an empty socket buffer.
bool AsioAcceptor::send_output(Session& session) {
  std::string& bytes = session.handshake.output();
  if (bytes.empty()) return true;
  const ssize_t sent =
      ::send(session.descriptor.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  const bool all = sent == static_cast<ssize_t>(bytes.size());
  bytes.clear();
  return all;
}

void AsioAcceptor::hand_over(const SessionPtr& session) {
  descriptors_.remove(session->descriptor.native_handle());
  unfinished_.erase(session->place);
  Socket socket(session->descriptor.release());
  if (options_.accepted) options_.accepted(session->handshake.hello(), std::move(socket));
}

void AsioAcceptor::refuse(const SessionPtr& session, std::string_view why) {
  ++refused_;
  log_.add(fmt::format("refused a connection from {}: {}", session->peer.to_string(), why));
  drop(session);
  arm_timer();
}

void AsioAcceptor::drop(const SessionPtr& session) {
  descriptors_.remove(session->descriptor.native_handle());
  const SessionPtr keep = session;  // `session` may be the list's own element
  unfinished_.erase(keep->place);
  keep->descriptor.close();
}

void AsioAcceptor::refuse_expired() {
  const auto now = Clock::now();
  while (!unfinished_.empty() && unfinished_.front()->expires <= now) {
    refuse(unfinished_.front(), "no hello within 5 s");
  }
  log_.flush();
}

// One timer for the oldest connection and for the log; it is left alone while it is early enough.
void AsioAcceptor::arm_timer() {
  Deadline due = log_.due();
  if (!unfinished_.empty()) due = std::min(due, unfinished_.front()->expires);
  if (due >= timer_due_) return;
  timer_due_ = due;
  timer_.expires_at(due);
  timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    timer_due_ = never();
    refuse_expired();
    arm_timer();
  });
}

}  // namespace

Result<std::unique_ptr<Acceptor>> Acceptor::listen(Options options) {
  auto listener = listen_in_range(options.address, options.ports);
  if (!listener) return fail(listener.error());
  try {
    return std::make_unique<AsioAcceptor>(std::move(options), std::move(*listener));
  } catch (const std::exception& error) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot accept connections: {}", error.what()));
  }
}

}  // namespace pushpull
