#include "core/c_api.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/config.h"
#include "core/create_store.h"
#include "core/environment.h"
#include "core/kvstore.h"
#include "core/version.h"

using namespace pushpull;  // NOLINT: this file is the border to C

struct PushPullStore {
  std::unique_ptr<Registry> registry;  // outlives the store
  std::unique_ptr<KVStore> store;
  std::string type;
  std::string dumped;
};

namespace {

struct LastError {
  std::string message;
  bool restartable = false;
};
thread_local LastError last_error;

int report(const Error& error) {
  last_error = {error.message(), error.restartable()};
  return static_cast<int>(error.code());
}

int report(const Result<void>& result) { return result ? PUSHPULL_OK : report(result.error()); }

int misuse(const char* what) {
  last_error = {what, false};
  return PUSHPULL_MISUSE;
}

// Nothing throws across the C border; running out of memory is the one exception left.
template <class F>
int guarded(F&& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    return misuse(e.what());
  }
}

Result<Tensor> to_tensor(const PushPullTensor& t) {
  const auto dtype = dtype_from_int(t.dtype);
  if (!dtype) return fail(ErrorCode::kInvalidArgument, fmt::format("unknown dtype {}", t.dtype));
  Tensor tensor{t.data, *dtype, {}};
  if (t.ndim > 0) tensor.shape.assign(t.shape, t.shape + t.ndim);
  for (int64_t d : tensor.shape)
    if (d < 0) return fail(ErrorCode::kInvalidArgument, "a shape with a negative or unknown dimension");
  return tensor;
}

Result<std::vector<Tensor>> to_tensors(const PushPullTensor* list, int count) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < count; ++i) {
    auto t = to_tensor(list[i]);
    if (!t) return fail(t.error());
    tensors.push_back(std::move(*t));
  }
  return tensors;
}

void on_done(Work work, PushPullDone done, void* context) {
  if (!done) return;
  work.then([done, context](const Result<void>& result) {
    if (result) {
      done(context, PUSHPULL_OK, "");
    } else {
      done(context, static_cast<int>(result.error().code()), result.error().message().c_str());
    }
  });
}

// The backend that a type name fixes; empty for dist_sync_pushpull and "".
Result<std::string> backend_of_type(std::string type) {
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::tolower(c)); });
  if (type.empty() || type == "dist_sync_pushpull") return std::string();
  for (const char* backend : {"mpi", "gloo", "gloo-redis"})
    if (type == type_name(backend)) return std::string(backend);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("unknown kvstore type '{}'; known are dist_sync_pushpull, dist_sync_mpi, "
                          "dist_sync_gloo and dist_sync_gloo_redis",
                          type));
}

Result<Settings> settings_for(const char* type, const char* const* flags) {
  std::map<std::string, std::string> given;
  for (; flags && flags[0] && flags[1]; flags += 2) given[flags[0]] = flags[1];
  auto config = Config::load(given, environment_variable);
  if (!config) return fail(config.error());
  auto settings = config->settings();
  if (!settings) return settings;
  auto fixed = backend_of_type(type ? type : "");
  if (!fixed) return fail(fixed.error());
  if (fixed->empty() || *fixed == settings->backend) return settings;
  const ConfigValue& said = config->value("backend");
  if (said.origin != "default")
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("kvstore type {} means backend {}, but {} says {}; make them agree, or use "
                            "dist_sync_pushpull, which takes the configured backend",
                            type, *fixed, said.origin, settings->backend));
  settings->backend = *fixed;
  return settings;
}

Result<std::unique_ptr<PushPullStore>> create(const char* type, const char* const* flags) {
  auto settings = settings_for(type, flags);
  if (!settings) return fail(settings.error());
  auto handle = std::make_unique<PushPullStore>();
  handle->registry = std::make_unique<Registry>(settings->module_path);
  auto store = create_store(std::move(*settings), *handle->registry, environment_variable);
  if (!store) return fail(store.error());
  handle->store = std::move(*store);
  handle->type = handle->store->type();
  return handle;
}

// A call with arguments that are none: it counts as made and failed, as one that KVStore refuses does.
int refuse(PushPullStore& handle, CallKind kind, const char* key, uint64_t call, const Error& error) {
  KVStore& store = *handle.store;
  store.withdraw(kind, key, call != 0 ? call : store.reserve(kind, key), error.message());
  return report(error);
}

CallKind to_kind(int kind) { return kind == PUSHPULL_KIND_BROADCAST ? CallKind::kBroadcast : CallKind::kPushPull; }

}  // namespace

extern "C" {

int pushpull_c_api_version(void) { return PUSHPULL_C_API_VERSION; }
const char* pushpull_version(void) { return kVersion; }
const char* pushpull_last_error(void) { return last_error.message.c_str(); }
int pushpull_last_error_restartable(void) { return last_error.restartable; }

int pushpull_create(const char* type, const char* const* flags, PushPullStore** store) {
  if (!store) return misuse("pushpull_create: store is null");
  return guarded([&] {
    auto made = create(type, flags);
    if (!made) return report(made.error());
    *store = made->release();
    return static_cast<int>(PUSHPULL_OK);
  });
}

int pushpull_close(PushPullStore* store) {
  if (!store) return misuse("pushpull_close: store is null");
  return guarded([&] { return report(store->store->close()); });
}

void pushpull_free(PushPullStore* store) { delete store; }

const char* pushpull_type(const PushPullStore* store) { return store->type.c_str(); }
int pushpull_rank(const PushPullStore* store) { return store->store->rank(); }
int pushpull_size(const PushPullStore* store) { return store->store->num_workers(); }
int pushpull_local_rank(const PushPullStore* store) { return store->store->local_rank(); }
int pushpull_local_size(const PushPullStore* store) { return store->store->local_size(); }

int pushpull_reserve(PushPullStore* store, int kind, const char* key, uint64_t* call) {
  if (!store || !key || !call) return misuse("pushpull_reserve: null argument");
  return guarded([&] {
    *call = store->store->reserve(to_kind(kind), key);
    return static_cast<int>(PUSHPULL_OK);
  });
}

int pushpull_pushpull(PushPullStore* store, const char* key, uint64_t call, const PushPullTensor* ins,
                      int num_ins, const PushPullTensor* outs, int num_outs, int priority,
                      double prescale, double postscale, PushPullDone done, void* context) {
  if (!store || !key) return misuse("pushpull_pushpull: null argument");
  return guarded([&] {
    auto in = to_tensors(ins, num_ins);
    if (!in) return refuse(*store, CallKind::kPushPull, key, call, in.error());
    auto out = to_tensors(outs, num_outs);
    if (!out) return refuse(*store, CallKind::kPushPull, key, call, out.error());
    on_done(store->store->pushpull(key, *in, *out, {priority, call, prescale, postscale}), done, context);
    return static_cast<int>(PUSHPULL_OK);
  });
}

int pushpull_broadcast(PushPullStore* store, const char* key, uint64_t call, const PushPullTensor* value,
                       const PushPullTensor* outs, int num_outs, int root, int priority,
                       PushPullDone done, void* context) {
  if (!store || !key || !value) return misuse("pushpull_broadcast: null argument");
  return guarded([&] {
    auto in = to_tensor(*value);
    if (!in) return refuse(*store, CallKind::kBroadcast, key, call, in.error());
    auto out = to_tensors(outs, num_outs);
    if (!out) return refuse(*store, CallKind::kBroadcast, key, call, out.error());
    on_done(store->store->broadcast(key, *in, *out, root, {priority, call}), done, context);
    return static_cast<int>(PUSHPULL_OK);
  });
}

int pushpull_barrier(PushPullStore* store, PushPullDone done, void* context) {
  if (!store) return misuse("pushpull_barrier: store is null");
  return guarded([&] {
    on_done(store->store->barrier(), done, context);
    return static_cast<int>(PUSHPULL_OK);
  });
}

int pushpull_join(PushPullStore* store, int* last, PushPullDone done, void* context) {
  if (!store) return misuse("pushpull_join: store is null");
  return guarded([&] {
    on_done(store->store->join(last), done, context);
    return static_cast<int>(PUSHPULL_OK);
  });
}

int pushpull_abort(PushPullStore* store, const char* reason) {
  if (!store || !reason) return misuse("pushpull_abort: null argument");
  return guarded([&] {
    store->store->abort(Error(ErrorCode::kAborted, reason));
    return static_cast<int>(PUSHPULL_OK);
  });
}

int pushpull_withdraw(PushPullStore* store, int kind, const char* key, uint64_t call, const char* reason) {
  if (!store || !key || !reason) return misuse("pushpull_withdraw: null argument");
  return guarded([&] {
    store->store->withdraw(to_kind(kind), key, call, reason);
    return static_cast<int>(PUSHPULL_OK);
  });
}

int pushpull_failure(const PushPullStore* store) {
  if (!store) return misuse("pushpull_failure: store is null");
  return guarded([&] {
    const auto failure = store->store->failure();
    return failure ? report(*failure) : static_cast<int>(PUSHPULL_OK);
  });
}

int pushpull_unsupported(const PushPullStore* store, const char* call) {
  if (!store || !call) return misuse("pushpull_unsupported: null argument");
  return guarded([&] { return report(store->store->unsupported(call)); });
}

const char* pushpull_dump(PushPullStore* store) {
  store->dumped = store->store->dump();
  return store->dumped.c_str();
}

}  // extern "C"
