/* The C interface of libpushpull: what language bindings use.
 *
 * Functions return 0 on success, else a PushPullError code (1-7, see core/error.h; -1 for misuse),
 * and pushpull_last_error() has the sentence for the calling thread. No C++ type crosses. Strings are UTF-8,
 * zero-terminated; returned strings belong to the library and live until the handle dies or, for
 * pushpull_last_error(), until the next failing call of this thread. Handles may be used from any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PUSHPULL_API __attribute__((visibility("default")))
#define PUSHPULL_C_API_VERSION 1

typedef struct PushPullStore PushPullStore;

enum PushPullErrorCode {
  PUSHPULL_OK = 0,
  PUSHPULL_INVALID_ARGUMENT = 1,
  PUSHPULL_UNSUPPORTED = 2,
  PUSHPULL_UNAVAILABLE = 3,
  PUSHPULL_MISMATCH = 4,
  PUSHPULL_TIMEOUT = 5,
  PUSHPULL_PEER_LOST = 6,
  PUSHPULL_ABORTED = 7,
  PUSHPULL_MISUSE = -1
};

enum PushPullKind { PUSHPULL_KIND_PUSHPULL = 0, PUSHPULL_KIND_BROADCAST = 1 };

/* dtype: 0 float32, 1 float64, 2 float16, 3 uint8, 4 int32, 5 int8, 6 int64, 7 bfloat16. */
typedef struct PushPullTensor {
  void* data;
  int32_t dtype;
  int32_t ndim;
  const int64_t* shape; /* ndim numbers; read during the call only */
} PushPullTensor;

/* Called exactly once per call that returned 0 (never where it did not): code and sentence (valid during the callback; empty on success).
 * On a thread of the library, or on the caller's before the function returns. Must not block. */
typedef void (*PushPullDone)(void* context, int code, const char* message);

PUSHPULL_API int pushpull_c_api_version(void);
PUSHPULL_API const char* pushpull_version(void); /* "0.1.0" */
PUSHPULL_API const char* pushpull_last_error(void);
PUSHPULL_API int pushpull_last_error_restartable(void); /* 1: exit code 75 helps */

/* Joins the group that flags, environment and configuration file describe. `type` is a KVStore type
 * name ("dist_sync_mpi"; "" or "dist_sync_pushpull" take the configured backend). `flags`: alternating
 * configuration paths and texts, ended by NULL; may be NULL. Blocks until all ranks have joined. */
PUSHPULL_API int pushpull_create(const char* type, const char* const* flags, PushPullStore** store);
/* Leaves in good order (see KVStore::close); pending calls end first. The handle stays valid. */
PUSHPULL_API int pushpull_close(PushPullStore* store);
/* Frees the handle; aborts what is still going on unless closed before. */
PUSHPULL_API void pushpull_free(PushPullStore* store);

PUSHPULL_API const char* pushpull_type(const PushPullStore* store);
PUSHPULL_API int pushpull_rank(const PushPullStore* store);
PUSHPULL_API int pushpull_size(const PushPullStore* store);
PUSHPULL_API int pushpull_local_rank(const PushPullStore* store);
PUSHPULL_API int pushpull_local_size(const PushPullStore* store);

/* Fixes which call of (kind, key) comes next in program order; pass `call` to the call itself, which
 * may be made later and from another thread, or to pushpull_withdraw(). See KVStore::reserve. */
PUSHPULL_API int pushpull_reserve(PushPullStore* store, int kind, const char* key, uint64_t* call);

/* call: from pushpull_reserve(), or 0 for the next one. */
PUSHPULL_API int pushpull_pushpull(PushPullStore* store, const char* key, uint64_t call,
                                   const PushPullTensor* ins, int num_ins, const PushPullTensor* outs,
                                   int num_outs, int priority, double prescale, double postscale,
                                   PushPullDone done, void* context);
PUSHPULL_API int pushpull_broadcast(PushPullStore* store, const char* key, uint64_t call,
                                    const PushPullTensor* value, const PushPullTensor* outs,
                                    int num_outs, int root, int priority, PushPullDone done,
                                    void* context);
PUSHPULL_API int pushpull_barrier(PushPullStore* store, PushPullDone done, void* context);
/* See KVStore::join. `last` (may be NULL) must stay valid until `done`. */
PUSHPULL_API int pushpull_join(PushPullStore* store, int* last, PushPullDone done, void* context);

/* This rank gives up; every call of every rank fails with this reason. */
PUSHPULL_API int pushpull_abort(PushPullStore* store, const char* reason);
/* The reserved call will never come from this rank. */
PUSHPULL_API int pushpull_withdraw(PushPullStore* store, int kind, const char* key, uint64_t call,
                                   const char* reason);
/* 0 while the group is well, else its sticky error. */
PUSHPULL_API int pushpull_failure(const PushPullStore* store);
/* Always fails, with the contract's sentence for an unsupported call. */
PUSHPULL_API int pushpull_unsupported(const PushPullStore* store, const char* call);
PUSHPULL_API const char* pushpull_dump(PushPullStore* store);

#ifdef __cplusplus
}
#endif
