#include "mxnet_binding/bridge/store.h"

#include <optional>
#include <utility>

#include "mxnet_binding/bridge/operation.h"

namespace pushpull::bridge {
namespace {

Result<void> check_pair(const char* key, const ArrayInfo& in, const ArrayInfo& out) {
  if (in.dtype == out.dtype && in.shape == out.shape) return {};
  return fail(PUSHPULL_INVALID_ARGUMENT, std::string("key ") + key + ": value is " + to_string(in) +
                                             " but out is " + to_string(out) +
                                             "; they must be alike");
}

}  // namespace

BridgedStore::BridgedStore(std::shared_ptr<const MxnetLibrary> library, PushPullStore* store,
                           bool immediate)
    : library_(std::move(library)), store_(store), immediate_(immediate) {}

Result<void> BridgedStore::pushpull(const char* key, NDArrayHandle in, NDArrayHandle out,
                                    const CallOptions& options) {
  return start(PUSHPULL_KIND_PUSHPULL, key, in, out, options);
}

Result<void> BridgedStore::broadcast(const char* key, NDArrayHandle value, NDArrayHandle out,
                                     const CallOptions& options) {
  return start(PUSHPULL_KIND_BROADCAST, key, value, out, options);
}

Result<void> BridgedStore::check(const char* key, NDArrayHandle array) const {
  if (auto info = inspect(key, array); !info) return fail(info.error());
  return {};
}

Result<ArrayInfo> BridgedStore::inspect(const char* key, NDArrayHandle array) const {
  auto info = describe(*library_, array);
  if (!info)
    return fail(info.error().code, std::string("key ") + key + ": " + info.error().message);
  if (!info->on_host) return fail(kNotOnHost, {});
  return info;
}

Result<void> BridgedStore::start(int kind, const char* key, NDArrayHandle in, NDArrayHandle out,
                                 const CallOptions& options) {
  if (const int code = pushpull_failure(store_); code != 0) return fail(core_failure(code));
  auto info = inspect(key, out);
  if (!info) return fail(info.error());
  auto out_ref = ArrayRef::copy_of(*library_, out);
  if (!out_ref) return fail(out_ref.error());
  ArrayRef in_ref;
  if (in != out) {
    auto in_info = inspect(key, in);
    if (!in_info) return fail(in_info.error());
    if (auto alike = check_pair(key, *in_info, *info); !alike) return alike;
    auto copy = ArrayRef::copy_of(*library_, in);
    if (!copy) return fail(copy.error());
    in_ref = std::move(*copy);
  }

  std::unique_lock order(order_);
  auto operation =
      std::make_unique<Operation>(shared_from_this(), kind, names_of(key), options,
                                  std::move(*info), std::move(in_ref), std::move(*out_ref));
  if (!immediate_) return Operation::push(std::move(operation), nullptr);

  // The engine runs the operation inside the push and waits for the other ranks.
  order.unlock();
  std::optional<Failure> outcome;
  if (auto pushed = Operation::push(std::move(operation), &outcome); !pushed) return pushed;
  if (outcome) return fail(*outcome);
  return {};
}

const KeyNames& BridgedStore::names_of(const char* key) {
  auto found = names_.find(std::string_view(key));
  if (found == names_.end()) {
    const std::string text(key);
    auto names =
        std::make_unique<KeyNames>(KeyNames{text, "pushpull:" + text, "broadcast:" + text});
    found = names_.emplace(text, std::move(names)).first;
  }
  return *found->second;
}

bool BridgedStore::idle(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_);
  return idle_.wait_for(lock, timeout, [this] { return operations_ == 0; });
}

bool BridgedStore::handed_over_errors() const {
  std::lock_guard lock(state_);
  return handed_over_errors_;
}

void BridgedStore::operation_begins() {
  std::lock_guard lock(state_);
  ++operations_;
}

void BridgedStore::operation_ends() {
  std::lock_guard lock(state_);
  if (--operations_ == 0) idle_.notify_all();
}

void BridgedStore::error_handed_over() {
  std::lock_guard lock(state_);
  handed_over_errors_ = true;
}

}  // namespace pushpull::bridge
