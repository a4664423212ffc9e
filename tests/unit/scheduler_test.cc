// A rank's half of the agreement, without the other half.
#include "core/scheduler.h"

#include <cstdlib>
#include <cstring>
#include <future>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "core/work.h"

namespace pushpull {
namespace {

using namespace std::chrono_literals;

// What the coordinator says comes through shared memory: somebody has to look.
class LookedAtLink final : public ControlLink {
 public:
  void start(Receiver receiver) override { receiver_ = std::move(receiver); }
  void send(std::span<const FromRank>) override {}
  void share(int, const MailboxPair&) override {}
  bool poll() override {
    std::vector<ToRank> messages;
    {
      const std::lock_guard lock(mutex_);
      messages.swap(waiting_);
    }
    for (const ToRank& m : messages) receiver_.message(m);
    return !messages.empty();
  }
  void watch(bool on) override { watched_ = on; }
  void drain() override { (void)poll(); }
  void close() override {}
  int fd() const override { return -1; }

  void put(ToRank message) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(message));
  }
  bool watched() const { return watched_; }

 private:
  Receiver receiver_;
  std::mutex mutex_;
  std::vector<ToRank> waiting_;
  std::atomic<bool> watched_ = false;
};

class OwnCollective final : public Collective {
 public:
  using Allreduce = std::function<Result<void>(std::span<const Part>, const Reduce&, const PartDone&)>;
  explicit OwnCollective(Allreduce allreduce) : allreduce_(std::move(allreduce)) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  Result<void> allreduce(std::span<const Part> parts, const Reduce& reduce,
                         const PartDone& done) override {
    return allreduce_(parts, reduce, done);
  }
  Result<void> broadcast(std::span<const Part>, int, const PartDone&) override { return {}; }
  Result<void> allgather(const void*, void*, std::span<const size_t>) override { return {}; }
  Result<void> barrier() override { return {}; }
  void abort(const Error& reason) override {
    std::call_once(once_, [&] { aborted_.set_value(reason); });
  }

  std::shared_future<Error> aborted() { return aborted_future_; }

 private:
  const Allreduce allreduce_;
  std::once_flag once_;
  std::promise<Error> aborted_;
  std::shared_future<Error> aborted_future_ = aborted_.get_future().share();
};

class SchedulerTest : public ::testing::Test {
 protected:
  void start(OwnCollective::Allreduce allreduce, bool drive) {
    Group group;
    group.rank = 0;
    group.members.resize(1);
    auto collective = std::make_unique<OwnCollective>(std::move(allreduce));
    collective_ = collective.get();
    Scheduler::Options options;
    options.drive = drive;
    scheduler_ = std::make_unique<Scheduler>(group, std::move(collective), link_,
                                             make_stderr_logger(LogLevel::kError, "test"), options);
    link_.start({[this](const ToRank& m) { scheduler_->receive(m); }, {}});
  }

  Work submit(const std::string& key, std::vector<float>& v, Reduce reduce = {}) {
    auto call = std::make_unique<Call>();
    call->key = key;
    call->signature.dtype = DType::kFloat32;
    call->signature.shape = {static_cast<int64_t>(v.size())};
    call->signature.reduce = reduce;
    call->count = v.size();
    call->ins = {v.data()};
    call->outs = {v.data()};
    call->work = std::make_shared<WorkState>();
    call->work->driver = scheduler_->driver();
    Work work(call->work);
    scheduler_->submit(std::move(call));
    return work;
  }

  // The first call of each of these keys, whose numbers are 0, 1, ...
  void put_batch(std::initializer_list<const char*> keys, uint64_t count) {
    Batch batch{};
    batch.number = 1;
    batch.kind = CallKind::kPushPull;
    uint32_t id = 0;
    for (const char* key : keys) {
      Name name{};
      name.id = id;
      name.kind = CallKind::kPushPull;
      name.key = key;
      link_.put(name);
      BatchEntry entry{};
      entry.id = id++;
      entry.call = 1;
      entry.begin = 0;
      entry.end = count;
      entry.last = true;
      batch.entries.push_back(entry);
    }
    link_.put(batch);
  }

  LookedAtLink link_;
  std::vector<void*> taken_;
  OwnCollective* collective_ = nullptr;
  std::unique_ptr<Scheduler> scheduler_;
};

// The first call of a batch is gone when the others still need what they have in common with it.
TEST_F(SchedulerTest, ABatchKeepsItsScalesWhenItsFirstCallHasEnded) {
  std::vector<Reduce> seen;
  start(
      [&](std::span<const Part> parts, const Reduce& reduce, const PartDone& done) -> Result<void> {
        for (size_t i = 0; i < parts.size(); ++i) {
          seen.push_back(reduce);
          done(i);
          // Takes the memory that has just become free, as another thread might.
          for (int n = 0; n < 64; ++n) {
            void* const taken = std::malloc(sizeof(Call));
            std::memset(taken, 0xee, sizeof(Call));
            taken_.push_back(taken);
          }
        }
        return {};
      },
      false);
  std::vector<float> a(16, 1), b(16, 1), c(16, 1);
  const Reduce reduce{2.0, 0.5};
  Work works[] = {submit("a", a, reduce), submit("b", b, reduce), submit("c", c, reduce)};
  put_batch({"a", "b", "c"}, 16);
  link_.drain();
  for (Work& work : works) ASSERT_TRUE(work.wait(deadline_in(10s)));
  scheduler_.reset();  // the batch itself has ended too
  EXPECT_EQ(seen, std::vector<Reduce>(3, reduce));
  for (void* taken : taken_) std::free(taken);
}

// A call that was reserved after a join, and that the coordinator then has made with zeros, is one call.
TEST_F(SchedulerTest, AStandInTakesTheReservedCall) {
  start(
      [](std::span<const Part> parts, const Reduce&, const PartDone& done) -> Result<void> {
        for (size_t i = 0; i < parts.size(); ++i) done(i);
        return {};
      },
      false);
  const uint64_t number = scheduler_->reserve(CallKind::kPushPull, "a");
  Name name{};
  name.kind = CallKind::kPushPull;
  name.key = "a";
  StandIn stand_in{};
  stand_in.call = number;
  stand_in.signature.dtype = DType::kFloat32;
  stand_in.signature.shape = {16};
  link_.put(name);
  link_.put(stand_in);
  put_batch({"a"}, 16);
  link_.drain();
  const auto limit = deadline_in(10s);
  while (scheduler_->dump().find("1 finished") == std::string::npos && Clock::now() < limit)
    std::this_thread::sleep_for(1ms);
  EXPECT_NE(scheduler_->dump().find(", 0 calls open"), std::string::npos) << scheduler_->dump();
}

// Who runs a batch does not look, and nobody wakes the loop while the link is watched: the loop's
// timer looks. A verdict must not wait for the batch that it is to end.
TEST_F(SchedulerTest, WhatComesWhileADriverRunsABatchIsReceived) {
  std::promise<void> running;
  start(
      [&](std::span<const Part>, const Reduce&, const PartDone&) -> Result<void> {
        running.set_value();
        if (collective_->aborted().wait_for(10s) != std::future_status::ready)
          return fail(ErrorCode::kTimeout, "nobody ended the batch");
        return fail(collective_->aborted().get());
      },
      true);
  std::vector<float> v(16, 1);
  Work work = submit("a", v);
  put_batch({"a"}, 16);
  auto waiting = std::async(std::launch::async, [&] { return work.wait(deadline_in(20s)); });
  running.get_future().wait();
  ASSERT_TRUE(link_.watched());
  Aborted aborted{};
  aborted.code = ErrorCode::kAborted;
  aborted.culprit = -1;
  aborted.message = "the loss is NaN";
  link_.put(aborted);
  scheduler_->report_progress();
  const auto result = waiting.get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message(), "the loss is NaN");
}

}  // namespace
}  // namespace pushpull
