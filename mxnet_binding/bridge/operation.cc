#include "mxnet_binding/bridge/operation.h"

#include <string>
#include <utility>

#include "mxnet_binding/bridge/engine_error.h"

namespace pushpull::bridge {
namespace {

constexpr char kInputFailed[] = "the operation that was to compute its value failed or was dropped";

bool overlap(const void* a, const void* b, size_t bytes) {
  const auto* first = static_cast<const char*>(a);
  const auto* second = static_cast<const char*>(b);
  return first != second && first < second + bytes && second < first + bytes;
}

}  // namespace

Operation::Operation(std::shared_ptr<BridgedStore> store, int kind, const KeyNames& names,
                     const CallOptions& options, ArrayInfo info, ArrayRef in, ArrayRef out)
    : store_(std::move(store)),
      kind_(kind),
      names_(names),
      options_(options),
      info_(std::move(info)),
      in_(std::move(in)),
      out_(std::move(out)) {
  store_->operation_begins();
}

Operation::~Operation() {
  if (call_ != 0 && !settled_) withdraw(kInputFailed);
  store_->operation_ends();
}

const char* Operation::name() const {
  return kind_ == PUSHPULL_KIND_PUSHPULL ? names_.pushpull.c_str() : names_.broadcast.c_str();
}

Result<void> Operation::push(std::unique_ptr<Operation> operation,
                             std::optional<Failure>* outcome) {
  BridgedStore& store = *operation->store_;
  const MxnetLibrary& library = store.library();
  const int code = pushpull_reserve(store.core(), operation->kind_, operation->names_.key.c_str(),
                                    &operation->call_);
  if (code != 0) return fail(core_failure(code));

  operation->outcome_ = outcome;
  NDArrayHandle writes[1] = {operation->out_.handle()};
  NDArrayHandle reads[1] = {operation->in_.handle()};
  // A variable that is named twice would wait for itself.
  const int num_reads = operation->shares_chunk() ? 0 : 1;
  void* function = library.has_on_start() ? reinterpret_cast<void*>(&Operation::run_with_start)
                                          : reinterpret_cast<void*>(&Operation::run);
  const int priority = operation->options_.priority;
  const char* name = operation->name();
  Operation* owned_by_engine = operation.release();
  const int pushed = library.push_async(
      function, owned_by_engine, [](void* param) { delete static_cast<Operation*>(param); }, &kCpu,
      reads, num_reads, writes, 1, &kCpuPrioritized, priority, name, false);
  if (pushed != 0) {
    return fail(PUSHPULL_ABORTED,
                std::string("MXNet's engine did not take the operation: ") + library.last_error());
  }
  return {};
}

void Operation::run(void*, void* on_complete, void* operation) {
  auto* self = static_cast<Operation*>(operation);
  self->on_complete_ = *static_cast<EngineCallback*>(on_complete);
  self->begin();
}

void Operation::run_with_start(void* context, void* on_start, void* on_complete, void* operation) {
  started(*static_cast<EngineCallback*>(on_start));
  run(context, on_complete, operation);
}

void Operation::begin() {
  settled_ = true;
  if (auto located = locate(); !located) return refuse(located.error());
  const int code = exchange();  // *this may be gone when it returns 0
  if (code != 0) refuse(core_failure(code));
}

void Operation::refuse(const Failure& failure) {
  withdraw(failure.message.c_str());
  complete(&failure);
}

Result<void> Operation::locate() {
  auto out = out_.data(true);
  if (!out) return fail(out.error());
  void* in = *out;
  const bool read =
      kind_ == PUSHPULL_KIND_PUSHPULL || options_.root == pushpull_rank(store_->core());
  if (in_ && read) {
    auto data = in_.data(shares_chunk());
    if (!data) return fail(data.error());
    in = *data;
  }
  if (overlap(in, *out, info_.bytes())) {
    return fail(PUSHPULL_INVALID_ARGUMENT,
                "value and out of key " + names_.key +
                    " overlap without being the same: use separate arrays, or one array in place");
  }
  const auto tensor = [this](void* data) {
    return PushPullTensor{data, info_.dtype, static_cast<int32_t>(info_.shape.size()),
                          info_.shape.data()};
  };
  in_tensor_ = tensor(in);
  out_tensor_ = tensor(*out);
  return {};
}

int Operation::exchange() {
  if (kind_ == PUSHPULL_KIND_PUSHPULL) {
    return pushpull_pushpull(store_->core(), names_.key.c_str(), call_, &in_tensor_, 1,
                             &out_tensor_, 1, options_.priority, options_.prescale,
                             options_.postscale, &Operation::done, this);
  }
  return pushpull_broadcast(store_->core(), names_.key.c_str(), call_, &in_tensor_, &out_tensor_, 1,
                            options_.root, options_.priority, &Operation::done, this);
}

void Operation::done(void* operation, int code, const char* message) {
  auto* self = static_cast<Operation*>(operation);
  if (code == 0) {
    self->complete(nullptr);
    return;
  }
  const Failure failure{code, message, false};
  // Core may have refused the call before it took the number; where it did take it, this does
  // nothing.
  if (code == PUSHPULL_INVALID_ARGUMENT) self->withdraw(message);
  if (pushpull_failure(self->store_->core()) != 0) {
    // A matched MPI receive cannot be called back: it may write long after the group has failed.
    self->in_.leak();
    self->out_.leak();
  }
  self->complete(&failure);
}

void Operation::complete(const Failure* failure) {
  // The engine deletes *this inside the callback.
  const EngineCallback on_complete = on_complete_;
  // The store, and with it the library, may have no other owner.
  const std::shared_ptr<BridgedStore> store = store_;
  if (failure == nullptr) {
    on_complete.function(on_complete.engine, on_complete.operation, nullptr);
    return;
  }
  if (outcome_ != nullptr) *outcome_ = *failure;
  store->error_handed_over();
  complete_with_error(store->library(), on_complete, failure->message);
}

void Operation::withdraw(const char* reason) {
  // Nobody is left to tell if this fails: then the group has failed, and the others know.
  pushpull_withdraw(store_->core(), kind_, names_.key.c_str(), call_, reason);
}

}  // namespace pushpull::bridge
