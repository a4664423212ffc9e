#include "backends/rendezvous/tcp/server.h"

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <set>
#include <thread>

#include <fmt/format.h>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>

#include "backends/rendezvous/tcp/key_table.h"
#include "core/net/acceptor.h"
#include "core/net/dial_attempt.h"
#include "core/net/signals.h"

namespace pushpull::tcp_store {
namespace {

using Descriptor = asio::posix::stream_descriptor;
using std::chrono::milliseconds;
using std::chrono::seconds;

Hello hello_for(const ServerOptions& options) {
  Hello hello;
  hello.purpose = Purpose::kStore;
  hello.job = options.job;
  hello.rank = 0;
  return hello;
}

// Only for this job, and only for the store. Another rank 0 learns who is here already.
Result<void> judge(const Hello& hello, const std::string& job) {
  if (hello.purpose != Purpose::kStore) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("this is the rendezvous of job '{}', not a rank's own port", job));
  }
  if (hello.job == job && hello.rank == 0) {
    return fail(ErrorCode::kUnavailable, fmt::format("host {}, pid {}", host_name(), getpid()));
  }
  if (hello.job == job) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("this is the rendezvous of job '{}' (rank 0 on host {}, pid {}), not of "
                          "'{}': give each job an address of its own in PUSHPULL_RENDEZVOUS",
                          job, host_name(), getpid(), hello.job));
}

// One client. Its bytes are read only as far as one request goes.
struct Session {
  Session(asio::io_context& io, int fd, std::string name)
      : descriptor(io, fd), client(std::move(name)) {}
  Descriptor descriptor;
  std::string client;
  std::string input;
  std::string output;
  bool sending = false;
  bool answered = true;         // no request is being worked on
  KeyTable::Ticket ticket = 0;  // of the request that waits
};

class AsioServer final : public Server {
 public:
  explicit AsioServer(const ServerOptions& options)
      : io_(1), keep_running_(io_.get_executor()), table_(options.time_to_live) {
    const BlockSignals blocked;
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), "pushpull-store");
  }
  ~AsioServer() override {
    acceptor_.reset();
    io_.stop();
    thread_.join();
  }

  Result<void> listen(const ServerOptions& options);
  Endpoint endpoint() const override { return acceptor_->endpoint(); }
  Result<std::optional<Reply>> call(const Request& request, Deadline deadline) override;

 private:
  using SessionPtr = std::shared_ptr<Session>;

  void run();
  void begin(const std::string& client, Socket socket);
  void wait_for_bytes(const SessionPtr& session);
  void read_some(const SessionPtr& session);
  // false: the client broke the protocol.
  bool take_requests(const SessionPtr& session);
  void answer(const SessionPtr& session, const Reply& reply);
  void send_some(const SessionPtr& session);
  void end(const SessionPtr& session);

  asio::io_context io_;
  asio::executor_work_guard<asio::io_context::executor_type> keep_running_;
  KeyTable table_;                 // the server's thread only
  std::set<SessionPtr> sessions_;  // likewise
  std::thread thread_;
  std::unique_ptr<Acceptor> acceptor_;
};

Result<void> AsioServer::listen(const ServerOptions& options) {
  Acceptor::Options accepting;
  accepting.address = options.address;
  accepting.ports = {options.port, options.port};
  accepting.secret = options.secret;
  accepting.judge = [job = options.job](const Hello& hello) { return judge(hello, job); };
  accepting.accepted = [this](const Hello& hello, Socket socket) {
    // asio wants copyable handlers.
    auto shared = std::make_shared<Socket>(std::move(socket));
    asio::post(io_, [this, client = hello.detail, shared] { begin(client, std::move(*shared)); });
  };
  auto acceptor = Acceptor::listen(std::move(accepting));
  if (!acceptor) return fail(acceptor.error());
  acceptor_ = std::move(*acceptor);
  return {};
}

void AsioServer::run() {
  while (!io_.stopped()) {
    try {
      io_.run();
    } catch (const std::exception&) {
      // Out of memory: that request stays unanswered, its client asks again.
    }
  }
}

// ---- rank 0 itself ----

Result<std::optional<Reply>> AsioServer::call(const Request& request, Deadline deadline) {
  struct Pending {
    std::promise<Reply> reply;
    KeyTable::Ticket ticket = 0;  // the server's thread only
  };
  const auto pending = std::make_shared<Pending>();
  auto reply = pending->reply.get_future();
  asio::post(io_, [this, pending, request] {
    pending->ticket = table_.run("rank 0", request,
                                 [pending](const Reply& done) { pending->reply.set_value(done); });
  });
  while (true) {
    const int slice = milliseconds_left(deadline);
    if (reply.wait_for(milliseconds(slice)) == std::future_status::ready) return reply.get();
    if (slice == 0) break;
  }
  asio::post(io_, [this, pending] { table_.cancel(pending->ticket); });
  return std::nullopt;
}

// ---- the others ----

void AsioServer::begin(const std::string& client, Socket socket) {
  auto session = std::make_shared<Session>(io_, socket.fd(), client);
  (void)socket.release();
  // A client whose host is gone sends no farewell.
  const int on = 1;
  setsockopt(session->descriptor.native_handle(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  sessions_.insert(session);
  wait_for_bytes(session);
}

void AsioServer::wait_for_bytes(const SessionPtr& session) {
  session->descriptor.async_wait(Descriptor::wait_read,
                                 [this, session](const asio::error_code& error) {
                                   if (!error && session->descriptor.is_open()) read_some(session);
                                 });
}

void AsioServer::read_some(const SessionPtr& session) {
  char buffer[16u << 10];
  while (true) {
    const ssize_t got = ::recv(session->descriptor.native_handle(), buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return wait_for_bytes(session);
    if (got <= 0) return end(session);
    session->input.append(buffer, static_cast<size_t>(got));
    if (!take_requests(session)) return end(session);
  }
}

bool AsioServer::take_requests(const SessionPtr& session) {
  while (session->input.size() >= kFrameHeadBytes) {
    const auto length = frame_length(session->input);
    if (!length) return false;
    if (session->input.size() < kFrameHeadBytes + *length) return true;
    // Only one at a time: that bounds what a connection can make us keep.
    if (!session->answered || session->sending) return false;
    const auto request =
        decode_request(std::string_view(session->input).substr(kFrameHeadBytes, *length));
    session->input.erase(0, kFrameHeadBytes + *length);
    if (!request) return false;
    session->answered = false;
    session->ticket = table_.run(session->client, *request,
                                 [this, session](const Reply& reply) { answer(session, reply); });
  }
  return true;
}

void AsioServer::answer(const SessionPtr& session, const Reply& reply) {
  session->answered = true;
  session->ticket = 0;
  session->output = encode(reply);
  send_some(session);
}

void AsioServer::send_some(const SessionPtr& session) {
  if (!session->descriptor.is_open()) return;
  const ssize_t sent = ::send(session->descriptor.native_handle(), session->output.data(),
                              session->output.size(), MSG_NOSIGNAL);
  // A broken connection is noticed, and ended, where it is read.
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return;
  if (sent > 0) session->output.erase(0, static_cast<size_t>(sent));
  session->sending = !session->output.empty();
  if (!session->sending) return;
  session->descriptor.async_wait(Descriptor::wait_write,
                                 [this, session](const asio::error_code& error) {
                                   if (!error) send_some(session);
                                 });
}

void AsioServer::end(const SessionPtr& session) {
  table_.cancel(session->ticket);
  session->descriptor.close();
  sessions_.erase(session);
}

// ---- starting ----

// Who has our port, as far as a hello can tell.
enum class Occupant { kNobody, kSameJob, kOtherJob, kOtherSecret, kStranger };

Occupant occupant_of(const Endpoint& endpoint, const ServerOptions& options, std::string* says) {
  auto address = numeric_address(endpoint);
  if (!address) return Occupant::kStranger;
  DialAttempt attempt(*address, options.secret, hello_for(options), deadline_in(seconds(2)));
  finish(attempt);
  if (!attempt.error()) return Occupant::kStranger;
  *says = attempt.error()->message();
  switch (attempt.failure()) {
    case ClientHandshake::Failure::kSecret:
      return Occupant::kOtherSecret;
    case ClientHandshake::Failure::kRefused:
      return attempt.error()->code() == ErrorCode::kUnavailable ? Occupant::kSameJob
                                                                : Occupant::kOtherJob;
    default:
      break;
  }
  return attempt.error()->code() == ErrorCode::kUnavailable &&
                 attempt.failure() == ClientHandshake::Failure::kNone
             ? Occupant::kNobody
             : Occupant::kStranger;
}

Endpoint probe_endpoint(const ServerOptions& options) {
  if (options.address == "::" || options.address == "0.0.0.0") return {"127.0.0.1", options.port};
  return {options.address, options.port};
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options, Deadline deadline) {
  auto server = std::make_unique<AsioServer>(options);
  // A program that just ends may hold the port a moment longer.
  const Deadline grace = std::min(deadline, deadline_in(seconds(3)));
  // An earlier run of the same job may be about to end.
  const Deadline patience = std::min(deadline, deadline_in(seconds(10)));
  Backoff backoff;
  while (true) {
    auto listening = server->listen(options);
    if (listening) return server;
    if (listening.error().code() != ErrorCode::kUnavailable || options.port == 0) {
      return fail(listening.error());
    }
    const auto taken = [&](const std::string& by) {
      return fail(
          ErrorCode::kUnavailable,
          fmt::format("rank 0 cannot serve the rendezvous of job '{}' on {}: {}", options.job,
                      Endpoint{options.address, options.port}.to_string(), by));
    };
    std::string says;
    const Occupant occupant = occupant_of(probe_endpoint(options), options, &says);
    if (occupant == Occupant::kOtherJob) return taken(says);
    if (occupant == Occupant::kOtherSecret) {
      return taken(
          "a pushpull job with another secret has it; choose another port in "
          "PUSHPULL_RENDEZVOUS");
    }
    const auto now = Clock::now();
    if (occupant == Occupant::kSameJob && now >= patience) {
      return taken(fmt::format("another rank 0 or an earlier run of this job still has it ({}; this is host "
                               "{}, pid {}); give every process its own PUSHPULL_RANK, or end that run first",
                               says, host_name(), getpid()));
    }
    if (occupant != Occupant::kSameJob && now >= grace) {
      return taken(
          fmt::format("another program has it ({}); choose another port in "
                      "PUSHPULL_RENDEZVOUS",
                      listening.error().message()));
    }
    std::this_thread::sleep_for(backoff.next());
  }
}

}  // namespace pushpull::tcp_store
