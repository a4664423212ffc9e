"""What our package costs a script, by one process of a group of one: python tests/mxnet/costs.py

The time of `import pushpull.mxnet` beyond `import mxnet`, of the first store, and of a pushpull call."""

import time

import mxnet as mx

CALLS = 161
ROUNDS = 40


def main():
    mx.nd.ones((1,)).wait_to_read()
    start = time.perf_counter()
    import pushpull.mxnet  # noqa: F401
    imported = time.perf_counter()
    store = mx.kv.create("dist_sync_pushpull")
    made = time.perf_counter()
    arrays = [mx.nd.ones((1024,)) for _ in range(CALLS)]
    mx.nd.waitall()
    elapsed, used = [], []
    for _ in range(ROUNDS):
        begin, cpu = time.perf_counter(), time.thread_time()
        for i, array in enumerate(arrays):
            store.pushpull(i, array, priority=-i)
        elapsed.append((time.perf_counter() - begin) / CALLS)
        used.append((time.thread_time() - cpu) / CALLS)
        mx.nd.waitall()
    print(f"import {imported - start:.3f} s, first store {made - imported:.3f} s, together "
          f"{made - start:.3f} s; a pushpull call {describe(elapsed)}, of which the caller computes "
          f"{describe(used)} ({ROUNDS} rounds of {CALLS})")


def describe(seconds):
    seconds = sorted(seconds)
    return f"{1e6 * seconds[len(seconds) // 2]:.1f} us (fastest round {1e6 * seconds[0]:.1f})"


if __name__ == "__main__":
    main()
