/* The C interface of libpushpull_mxnet: calls of a KVStore as operations of MXNet's engine.
 *
 * Functions return 0 on success, else a code of core/c_api.h; pushpull_bridge_last_error() then has
 * the sentence for the calling thread. Array arguments are NDArrayHandles of the MXNet that was
 * opened; they are used during the call only. Handles may be used from any thread. */
#pragma once

#include "core/c_api.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct PushPullBridge PushPullBridge; /* to one loaded MXNet */
typedef struct PushPullBridgedStore PushPullBridgedStore;
typedef struct PushPullBridgedWait PushPullBridgedWait;

/* The array is not in host memory: copy it there by MXNet's own operators. No error text. */
#define PUSHPULL_BRIDGE_NOT_ON_HOST 100
/* Not done yet. No error text. */
#define PUSHPULL_BRIDGE_PENDING 101

PUSHPULL_API const char* pushpull_bridge_last_error(void);
PUSHPULL_API int pushpull_bridge_last_error_restartable(void);

/* `libmxnet`: path from which Python loaded it. Fails for a version of MXNet that is not known. */
PUSHPULL_API int pushpull_bridge_open(const char* libmxnet, PushPullBridge** bridge);
/* Whether MXNet lays out arrays as the bridge believes. `view`: a slice of `base`; `other`: another
 * array of the same shape. */
PUSHPULL_API int pushpull_bridge_verify(PushPullBridge* bridge, void* base, void* view,
                                        void* other);
/* Prepares MXNet's engine for many errors at once, see engine_error.h: `scratch` are arrays of
 * their own. Not with NaiveEngine. */
PUSHPULL_API int pushpull_bridge_make_room(PushPullBridge* bridge, void** scratch, int num_scratch);
PUSHPULL_API void pushpull_bridge_free(PushPullBridge* bridge);

/* `store` stays the caller's and must outlive the operations; see pushpull_bridge_idle().
 * `immediate`: MXNet runs with NaiveEngine. */
PUSHPULL_API int pushpull_bridge_attach(PushPullBridge* bridge, PushPullStore* store, int immediate,
                                        PushPullBridgedStore** bridged);
PUSHPULL_API void pushpull_bridge_detach(PushPullBridgedStore* bridged);

/* Start one exchange and return. in == out: in place. See BridgedStore. */
PUSHPULL_API int pushpull_bridge_pushpull(PushPullBridgedStore* bridged, const char* key, void* in,
                                          void* out, int priority, double prescale,
                                          double postscale);
PUSHPULL_API int pushpull_bridge_broadcast(PushPullBridgedStore* bridged, const char* key,
                                           void* value, void* out, int root, int priority);
/* Whether the array can be exchanged: 0, PUSHPULL_BRIDGE_NOT_ON_HOST, or an error. */
PUSHPULL_API int pushpull_bridge_check(PushPullBridgedStore* bridged, const char* key, void* array);

/* 1 when no operation is left in the engine, 0 after `milliseconds`. */
PUSHPULL_API int pushpull_bridge_idle(PushPullBridgedStore* bridged, int milliseconds);
/* 1 once an operation has failed: the engine may hold an error that nobody has read. */
PUSHPULL_API int pushpull_bridge_handed_over_errors(PushPullBridgedStore* bridged);

/* Takes part in the group's next barrier. wait: 0 when it is done, PUSHPULL_BRIDGE_PENDING after
 * `milliseconds`, or its error. It may be freed at any time. */
PUSHPULL_API int pushpull_bridge_barrier(PushPullStore* store, PushPullBridgedWait** wait);
PUSHPULL_API int pushpull_bridge_group_wait(PushPullBridgedWait* wait, int milliseconds);
/* The same for the group's next join; when it is done, `last` tells the rank that joined last. */
PUSHPULL_API int pushpull_bridge_join(PushPullStore* store, PushPullBridgedWait** wait);
PUSHPULL_API int pushpull_bridge_group_wait_last(PushPullBridgedWait* wait);
PUSHPULL_API void pushpull_bridge_group_wait_free(PushPullBridgedWait* wait);

/* The process will end with this code where it would have ended with 0 or 1: for failures that come
 * to light when nothing can raise them any more. Everything that runs at exit in Python still runs.
 */
PUSHPULL_API void pushpull_bridge_exit_with(int code);

#ifdef __cplusplus
}
#endif
