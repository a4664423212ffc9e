#include "core/kvstore.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/bootstrap.h"
#include "core/explain.h"
#include "core/fork_guard.h"
#include "core/work_state.h"

namespace pushpull {
namespace {

Work finished(const Result<void>& result) {
  auto state = std::make_shared<WorkState>();
  state->complete(result);
  return Work(std::move(state));
}

bool is_integer(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kUint8 || dtype == DType::kInt32 ||
         dtype == DType::kInt64;
}

// What the control plane carries in one string.
constexpr size_t kLongestKey = 1u << 20;

struct Advice {
  std::string_view call;
  std::string_view instead;
};

// MXNet's calls that a collective store does not have, and what serves instead.
constexpr Advice kAdvice[] = {
    {"init", "broadcast(key, value, root_rank) gives every worker the same initial value"},
    {"push", "pushpull(key, ins, outs) sums over all workers in one call"},
    {"pull", "pushpull(key, ins, outs) already writes the sum to every worker"},
    {"row_sparse_pull", "use dense gradients (sparse_grad=False) with pushpull"},
    {"set_gradient_compression", "cast gradients to float16 or bfloat16 to send half the bytes"},
    {"set_optimizer", "run the optimizer on the workers (Trainer with update_on_kvstore=False)"},
    {"save_optimizer_states", "save the optimizer's states on a worker (Trainer.save_states)"},
    {"load_optimizer_states", "load the optimizer's states on every worker (Trainer.load_states)"},
};

class KVStoreImpl final : public KVStore, private ForkObserver {
 public:
  KVStoreImpl(std::unique_ptr<Session> session, const Settings& settings,
              std::shared_ptr<Logger> logger)
      : session_(std::move(session)),
        logger_(std::move(logger)),
        type_(type_name(settings.backend)),
        leave_timeout_(settings.leave_timeout),
        pid_(::getpid()) {
    place(settings.local_rank);
    session_->io->every(std::chrono::milliseconds(25),
                        [scheduler = std::weak_ptr(session_->scheduler)] {
                          if (const auto live = scheduler.lock()) live->report_progress();
                        });
    if (settings.dump_signal) explain_on_signal(settings.job);
    watch();
  }

  ~KVStoreImpl() override {
    if (::getpid() != pid_) {
      session_.release();  // its threads are the parent's
      explainer_.release();
      return;
    }
    unwatch();
    if (!closed_) abort(Error(ErrorCode::kAborted, "its store was destroyed without being closed"));
  }

  uint64_t reserve(CallKind kind, std::string_view key) override {
    return forked() || key.size() > kLongestKey ? 0 : session_->scheduler->reserve(kind, key);
  }

  Work pushpull(std::string_view key, std::span<const Tensor> ins, std::span<const Tensor> outs,
                const PushPullOptions& options) override {
    if (auto usable = check_tensors(key, ins, outs, options); !usable)
      return refuse(CallKind::kPushPull, key, options.call, usable.error());
    auto call = make_call(CallKind::kPushPull, key, ins.front(), options.call, options.priority);
    call->signature.reduce = Reduce{options.prescale, options.postscale};
    for (const Tensor& in : ins) call->ins.push_back(in.data);
    for (const Tensor& out : outs) call->outs.push_back(out.data);
    return submit(std::move(call));
  }

  Work broadcast(std::string_view key, const Tensor& value, std::span<const Tensor> outs, int root,
                 const BroadcastOptions& options) override {
    if (auto usable = check_tensors(key, {&value, 1}, outs, {}); !usable)
      return refuse(CallKind::kBroadcast, key, options.call, usable.error());
    if (root < 0 || root >= num_workers())
      return refuse(CallKind::kBroadcast, key, options.call,
                    Error(ErrorCode::kInvalidArgument,
                          fmt::format("broadcast of key '{}': root rank {} does not exist in a group of {}",
                                      key, root, num_workers()))
                        .at_key(std::string(key)));
    auto call = make_call(CallKind::kBroadcast, key, value, options.call, options.priority);
    call->signature.root = root;
    call->ins.push_back(value.data);
    for (const Tensor& out : outs) call->outs.push_back(out.data);
    return submit(std::move(call));
  }

  Work barrier() override {
    if (forked()) return finished(fail(forked_error()));
    auto call = std::make_unique<Call>();
    call->kind = CallKind::kBarrier;
    return submit(std::move(call));
  }

  Work join(int* last) override {
    if (forked()) return finished(fail(forked_error()));
    auto call = std::make_unique<Call>();
    call->kind = CallKind::kJoin;
    if (last) call->outs.push_back(last);
    return submit(std::move(call));
  }

  Result<void> unsupported(std::string_view call) const override {
    std::string text = fmt::format("{} is not supported in kvstore with type {}", call, type_);
    for (const Advice& advice : kAdvice)
      if (advice.call == call) text += fmt::format("; {}", advice.instead);
    return fail(ErrorCode::kUnsupported, text);
  }

  std::string_view type() const override { return type_; }
  int rank() const override { return session_->group.rank; }
  int num_workers() const override { return session_->group.size(); }
  int local_rank() const override { return local_rank_; }
  int local_size() const override { return local_size_; }
  const std::vector<Member>& members() const override { return session_->group.members; }

  void abort(const Error& reason) override {
    if (forked() || session_->scheduler->failure()) return;
    const FromRank give_up = GiveUp{reason.message()};
    session_->link->send({&give_up, 1});
    // The coordinator's words come back to everyone; this rank does not wait for them.
    session_->scheduler->fail_group(
        Error(ErrorCode::kAborted, fmt::format("{} gave up: {}", session_->group.describe(rank()),
                                               reason.message()))
            .at_rank(rank(), session_->group.members[static_cast<size_t>(rank())].host));
  }

  void withdraw(CallKind kind, std::string_view key, uint64_t call, std::string_view reason) override {
    if (!forked() && key.size() <= kLongestKey)
      session_->scheduler->withdraw(kind, key, call, reason);
  }

  Result<void> close() override {
    if (forked()) return fail(forked_error());
    if (closed_.exchange(true)) return {};
    session_->scheduler->leave();
    if (session_->server && !session_->server->wait_until_left(deadline_in(leave_timeout_))) {
      session_->server->abort(
          Error(ErrorCode::kPeerLost, fmt::format("{}, which coordinates the group, left while others were "
                                                  "still in it",
                                                  session_->group.describe(0)))
              .at_rank(0));
    }
    session_->link->close();
    return {};
  }

  std::optional<Error> failure() const override {
    if (forked()) return forked_error();
    return session_->scheduler->failure();
  }

  void after_fork_in_child() override {
    std::vector<int> fds;
    if (session_->server) fds = session_->server->descriptors();
    fds.push_back(session_->link->fd());
    for (int fd : fds)
      if (fd >= 0) ::close(fd);
    if (explainer_) explainer_->after_fork_in_child();
  }

  std::string dump() const override {
    std::string text = session_->scheduler->dump();
    if (session_->server) text += session_->server->dump();
    return text;
  }

 private:
  bool forked() const { return ::getpid() != pid_; }

  Error forked_error() const {
    return Error(ErrorCode::kAborted,
                 fmt::format("this process was forked from pid {}, which owns the store; create stores "
                             "after forking, or use them in the parent only",
                             pid_));
  }

  void explain_on_signal(const std::string& job) {
    Session& session = *session_;
    explainer_ = Explainer::start(
        *session.io, {.job = job, .rank = rank(), .size = num_workers(), .text = {}},
        {.own = [&session] { return session.scheduler->dump(); },
         .ask =
             [&session] {
               if (session.scheduler->failure()) return false;
               const FromRank explain = Explain{};
               session.link->send({&explain, 1});
               return true;
             }});
    if (explainer_) session.scheduler->when_explained(explainer_->answered());
  }

  void place(int local_rank) {
    const auto& all = session_->group.members;
    const Member& me = all[static_cast<size_t>(session_->group.rank)];
    int before = 0;
    for (const Member& m : all) {
      if (m.host != me.host || m.boot_id != me.boot_id) continue;
      ++local_size_;
      if (m.rank < me.rank) ++before;
    }
    local_rank_ = local_rank >= 0 ? local_rank : before;
  }

  Result<void> check_tensors(std::string_view key, std::span<const Tensor> ins,
                             std::span<const Tensor> outs, const PushPullOptions& options) const {
    if (forked()) return fail(forked_error());
    const auto wrong = [&](const std::string& what) {
      return fail(Error(ErrorCode::kInvalidArgument, fmt::format("key '{}': {}", key, what))
                      .at_key(std::string(key)));
    };
    if (key.size() > kLongestKey)
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("a key of {} bytes that begins with '{}' is longer than {} bytes", key.size(),
                              key.substr(0, 40), kLongestKey));
    if (ins.empty() || outs.empty()) return wrong("at least one input and one output are needed");
    const Tensor& first = ins.front();
    for (auto list : {ins, outs}) {
      for (const Tensor& t : list) {
        if (t.dtype != first.dtype || t.shape != first.shape)
          return wrong("all inputs and outputs of a call must have the same dtype and shape");
        if (!t.data && t.count() > 0) return wrong("an array without memory");
      }
    }
    for (double s : {options.prescale, options.postscale})
      if (!std::isfinite(s) || (is_integer(first.dtype) && s != 1.0))
        return wrong(fmt::format("cannot scale {} by {}", to_string(first.dtype), s));
    return {};
  }

  // A call with wrong arguments counts as made, and as failed on every rank: the others do not wait.
  Work refuse(CallKind kind, std::string_view key, uint64_t number, const Error& error) {
    if (!forked()) withdraw(kind, key, number != 0 ? number : reserve(kind, key), error.message());
    return finished(fail(error));
  }

  static std::unique_ptr<Call> make_call(CallKind kind, std::string_view key, const Tensor& like,
                                         uint64_t number, int priority) {
    auto call = std::make_unique<Call>();
    call->kind = kind;
    call->key = key;
    call->number = number;
    call->priority = priority;
    call->signature.dtype = like.dtype;
    call->signature.shape = like.shape;
    call->count = like.count();
    return call;
  }

  Work submit(std::unique_ptr<Call> call) {
    call->work = std::make_shared<WorkState>();
    call->work->driver = session_->scheduler->driver();
    Work work(call->work);
    session_->scheduler->submit(std::move(call));
    return work;
  }

  std::unique_ptr<Session> session_;
  const std::shared_ptr<Logger> logger_;
  const std::string type_;
  const Duration leave_timeout_;
  const pid_t pid_;
  int local_rank_ = 0;
  int local_size_ = 0;
  std::atomic<bool> closed_ = false;
  std::unique_ptr<Explainer> explainer_;  // ends before the session that it looks at
};

}  // namespace

size_t Tensor::count() const {
  size_t n = 1;
  for (int64_t d : shape) n *= static_cast<size_t>(d);
  return n;
}

std::string type_name(std::string_view backend) {
  std::string name = "dist_sync_" + std::string(backend);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Result<std::unique_ptr<KVStore>> KVStore::create(const Settings& settings, Registry& registry,
                                                 std::shared_ptr<Logger> logger) {
  const Identity identity{std::max(settings.rank, 0), std::max(settings.size, 1)};
  if (!logger)
    logger = make_stderr_logger(parse_log_level(settings.log), fmt::format("pushpull rank {}", identity.rank));
  auto session = connect_group(settings, identity, registry, logger);
  if (!session) return fail(session.error());
  return std::make_unique<KVStoreImpl>(std::move(*session), settings, std::move(logger));
}

}  // namespace pushpull
