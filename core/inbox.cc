#include "core/inbox.h"

#include <fmt/format.h>

#include "core/control/describe.h"

namespace pushpull {

ControlLink::Receiver Inbox::receiver() {
  return {[this](const ToRank& message) { receive(message); },
          [this](const std::string& why) { lost(why); }};
}

void Inbox::set_scheduler(Scheduler* scheduler) {
  std::optional<Error> failure;
  {
    std::lock_guard lock(mutex_);
    scheduler_ = scheduler;
    failure = failure_;
  }
  if (failure) scheduler->fail_group(*failure);
}

void Inbox::on_failure(std::function<void(const Error&)> f) {
  std::lock_guard lock(mutex_);
  if (failure_ && f) f(*failure_);
  on_failure_ = std::move(f);
}

std::optional<Error> Inbox::failure() {
  std::lock_guard lock(mutex_);
  return failure_;
}

void Inbox::receive(const ToRank& message) {
  Scheduler* scheduler = nullptr;
  {
    std::lock_guard lock(mutex_);
    scheduler = scheduler_;
    if (const auto* welcome = std::get_if<Welcome>(&message)) welcome_ = *welcome;
    if (const auto* hosts = std::get_if<Hosts>(&message)) hosts_ = *hosts;
    if (std::holds_alternative<Ready>(message)) ready_ = true;
    if (const auto* aborted = std::get_if<Aborted>(&message)) {
      Error error(aborted->code, aborted->message);
      error.at_rank(aborted->culprit);
      if (aborted->restartable) error.make_restartable();
      failed(error);
    }
    changed_.notify_all();
  }
  if (scheduler) scheduler->receive(message);
}

void Inbox::lost(const std::string& why) {
  Scheduler* scheduler = nullptr;
  {
    std::lock_guard lock(mutex_);
    scheduler = scheduler_;
    const std::string who = welcome_ ? describe_member(welcome_->members[0]) : "rank 0";
    failed(Error(ErrorCode::kPeerLost,
                 fmt::format("{}, which coordinates the group, was lost: {}", who, why))
               .at_rank(0));
    changed_.notify_all();
  }
  if (scheduler) scheduler->coordinator_lost(why);
}

// Under the lock.
void Inbox::failed(const Error& error) {
  if (failure_) return;
  failure_ = error;
  if (on_failure_) on_failure_(error);
}

Result<Welcome> Inbox::wait_for_welcome(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return welcome_ || failure_; });
  if (failure_) return fail(*failure_);
  if (!welcome_)
    return fail(
        ErrorCode::kTimeout,
        "the other ranks did not join within the rendezvous timeout; rank 0, which was started "
        "later than this one, will say who is missing");
  return *welcome_;
}

Result<std::vector<int>> Inbox::wait_for_hosts(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return hosts_ || failure_; });
  if (failure_) return fail(*failure_);
  if (!hosts_)
    return fail(
        ErrorCode::kTimeout,
        "not every rank found out within the rendezvous timeout with whom it shares memory");
  return hosts_->hosts;
}

bool Inbox::knows_hosts() {
  std::lock_guard lock(mutex_);
  return hosts_.has_value();
}

Result<void> Inbox::wait_until_ready(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return ready_ || failure_; });
  if (failure_) return fail(*failure_);
  if (!ready_)
    return fail(ErrorCode::kTimeout,
                "not every rank connected its data plane within the rendezvous timeout");
  return {};
}

}  // namespace pushpull
