#include "backends/rendezvous/redis/redis_client.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "backends/rendezvous/redis/tls_probe.h"

namespace pushpull::redis {

namespace {

using namespace std::chrono_literals;

constexpr Duration kAttempt = 2s;  // connecting, login and answer together
constexpr Duration kFirstPause = 10ms;
constexpr Duration kLongestPause = 500ms;
constexpr Duration kTlsProbe = 300ms;

Deadline at_most(Duration duration, Deadline deadline) {
  return std::min(deadline_in(duration), deadline);
}

Error gave_up(const Fault& fault, int attempts, Duration waited) {
  const double seconds = std::chrono::duration<double>(waited).count();
  std::string text = fmt::format("{}; gave up after {} {} in {:.1f} s", fault.error.message(),
                                 attempts, attempts == 1 ? "attempt" : "attempts", seconds);
  if (!fault.advice.empty()) text += fmt::format(": {}", fault.advice);
  return Error(fault.error.code(), std::move(text));
}

}  // namespace

bool Backoff::sleep(Deadline deadline, std::minstd_rand& random) {
  const auto now = Clock::now();
  if (now >= deadline) return false;
  std::uniform_int_distribution<Duration::rep> between(next_.count() / 2, next_.count());
  const Duration pause(between(random));
  next_ = std::min(next_ * 2, most_);
  std::this_thread::sleep_for(std::min(pause, deadline - now));
  return Clock::now() < deadline;
}

RedisClient::RedisClient(RedisTarget target)
    : target_(std::move(target)),
      description_(target_.description()),
      host_(Endpoint{target_.host, target_.port}),
      random_(std::random_device{}()) {}

Question RedisClient::question(const Command& command) const {
  return {description_, target_.user, command.name(), command.inner, command.key};
}

Result<void> RedisClient::connect(Deadline deadline) {
  auto done = retry(nullptr, deadline);
  if (!done) return fail(std::move(done.error()));
  return {};
}

Result<Reply> RedisClient::call(const Command& command, Deadline deadline) {
  return retry(&command, deadline);
}

void RedisClient::try_once(const Command& command, Deadline deadline) {
  const auto outcome = attempt(&command, at_most(kAttempt, deadline));
  if (!outcome && outcome.error().reconnect) connection_.reset();
}

Result<Reply> RedisClient::retry(const Command* command, Deadline deadline) {
  const auto start = Clock::now();
  Backoff backoff(kFirstPause, kLongestPause);
  std::optional<Fault> last;
  for (int attempts = 1;; ++attempts) {
    const bool whole = Clock::now() + kAttempt <= deadline;
    auto reply = attempt(command, at_most(kAttempt, deadline));
    if (reply) return std::move(*reply);
    Fault& fault = reply.error();
    if (fault.reconnect) connection_.reset();
    if (!fault.retry) return fail(std::move(fault.error));
    // An attempt that the deadline cut short says less than the one before it.
    if (whole || !fault.timed_out() || !last) last = std::move(fault);
    if (!backoff.sleep(deadline, random_)) {
      return fail(gave_up(*last, attempts, Clock::now() - start));
    }
  }
}

Attempt<Reply> RedisClient::attempt(const Command* command, Deadline deadline) {
  // Found now, a connection that the server has closed meanwhile costs nothing but a new one.
  if (connection_ && !connection_->quiet()) connection_.reset();
  if (!connection_) {
    auto opened = open_socket(host_, {description_, target_.user}, deadline);
    if (!opened) return tl::unexpected(std::move(opened.error()));
    connection_.emplace(std::move(*opened));
    loopback_ = connection_->loopback();
    if (auto done = log_in(deadline); !done) return tl::unexpected(std::move(done.error()));
  }
  if (command == nullptr) return Reply{};
  auto reply = connection_->call(*command, question(*command), deadline);
  const bool never_answered = !connection_->answered();
  if (!reply && reply.error().retry && reply.error().reconnect && never_answered) {
    if (is_tls_port(deadline)) return tl::unexpected(tls_fault(question(*command)));
  }
  return reply;
}

Attempt<void> RedisClient::log_in(Deadline deadline) {
  const auto step = [&](const Command& command) -> Attempt<void> {
    auto reply = connection_->call(command, question(command), deadline);
    if (reply && reply->kind == Reply::Kind::kStatus) return {};
    Fault fault = reply ? odd_reply_fault(question(command)) : std::move(reply.error());
    if (fault.retry && !connection_->answered() && is_tls_port(deadline)) {
      fault = tls_fault(question(command));
    }
    fault.reconnect = true;  // half logged in is not logged in
    return tl::unexpected(std::move(fault));
  };
  if (target_.has_login()) {
    Command auth{{"AUTH", target_.password}};
    if (!target_.user.empty()) auth.words = {"AUTH", target_.user, target_.password};
    if (auto done = step(auth); !done) return done;
  }
  if (target_.database == 0) return {};
  const std::string database = std::to_string(target_.database);
  return step({{"SELECT", database}});
}

bool RedisClient::is_tls_port(Deadline deadline) {
  deadline = at_most(kTlsProbe, deadline);
  auto opened = open_socket(host_, {description_, target_.user}, deadline);
  return opened && speaks_tls(opened->socket.fd(), deadline);
}

}  // namespace pushpull::redis
