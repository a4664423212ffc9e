"""One way of ending, or of going wrong, per name: ``endings.py NAME``. Prints what tests look for."""

import os
import sys
import threading
import time

import mxnet as mx
import numpy as np

import pushpull.mxnet

MEGABYTES_100 = 25 << 20  # float32 elements


def exchange(kv, key="key", count=3):
    array = mx.nd.ones((count,))
    kv.pushpull(key, array)
    return array


def report(call):
    """Prints the error that the call raises, and how long that took."""
    start = time.monotonic()
    try:
        call()
    except pushpull.CollectiveError as error:
        print(f"error after {time.monotonic() - start:.1f} s: {error}", flush=True)
        return error
    print("no error", flush=True)
    return None


def finish(kv):
    exchange(kv).asnumpy()


def finish_with_work_in_flight(kv):
    for i in range(20):
        exchange(kv, i, 1 << 16)


def finish_at_different_times(kv):
    exchange(kv).asnumpy()
    time.sleep(1.5 * kv.rank)


def leave_early(kv):
    exchange(kv).asnumpy()
    if kv.rank == 1:
        return
    exchange(kv, "never").asnumpy()


def uncaught(kv):
    exchange(kv).asnumpy()
    if kv.rank == 1:
        raise ValueError("boom")
    exchange(kv, "never").asnumpy()


def exit_with_3(kv):
    exchange(kv).asnumpy()
    if kv.rank == 1:
        sys.exit(3)
    exchange(kv, "never").asnumpy()


def exit_at_once(kv):
    exchange(kv).asnumpy()
    if kv.rank == 1:
        os._exit(7)
    exchange(kv, "never").asnumpy()


def uncaught_in_thread(kv):
    def work():
        exchange(kv).asnumpy()
        if kv.rank == 1:
            raise ValueError("boom in a thread")
        report(lambda: exchange(kv, "never").asnumpy())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def unrelated_thread(kv):
    def work():
        raise ValueError("none of the store's business")

    if kv.rank == 1:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    exchange(kv).asnumpy()
    print("fine", flush=True)


def unread_failure(kv):
    kv.pushpull("unread", mx.nd.ones((2 + kv.rank,)))


def read_failure(kv):
    array = mx.nd.ones((2 + kv.rank,))
    kv.pushpull("read", array)
    report(array.asnumpy)


def train_for_ever(kv):
    """100 MB over and over until somebody dies; then everything has to raise the same."""
    arrays = [mx.nd.ones((MEGABYTES_100 // 10,)) for _ in range(10)]
    print(f"pid {os.getpid()}", flush=True)
    first = None
    for step in range(1000000):
        try:
            for i, array in enumerate(arrays):
                kv.pushpull(i, array, priority=-i)
            mx.nd.waitall()
            for array in arrays:
                value = array[0].asscalar()
                assert value == float(kv.num_workers), value
                array[:] = 1
            if step == 0:
                print("training", flush=True)
        except pushpull.CollectiveError as error:
            first = error
            break
    print(f"error: {first}", flush=True)
    for call in (lambda: exchange(kv), lambda: kv.broadcast("b", mx.nd.ones((2,)), 0), kv.barrier):
        again = report(call)
        assert str(again) == str(first), again
    raise first


def loader_workers(kv):
    from mxnet.gluon.data import ArrayDataset, DataLoader
    loader = DataLoader(ArrayDataset(np.arange(64, dtype="float32")), batch_size=8, num_workers=2)
    for _ in range(2):
        for batch in loader:
            kv.pushpull("batch", batch)
            batch.asnumpy()
    print("loaded", flush=True)


def train_with_loader_workers(kv):
    from mxnet.gluon.data import ArrayDataset, DataLoader
    kept = DataLoader(ArrayDataset(np.arange(64, dtype="float32")), batch_size=8, num_workers=2,
                      prefetch=1)
    iterator = iter(kept)
    next(iterator)
    train_for_ever(kv)


def fork_after_failure(kv):
    array = mx.nd.ones((2 + kv.rank,))
    kv.pushpull("unread", array)
    child = os.fork()
    if child == 0:
        report(lambda: kv.pushpull("key", mx.nd.ones((2,))))
        report(lambda: kv.broadcast("key", mx.nd.ones((2,)), 0))
        report(kv.barrier)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    report(lambda: exchange(kv))
    print(exchange(kv).asnumpy().tolist(), flush=True)


def fork_before_the_store(_):
    """Started without a store: the child must be able to make one in the parent's place."""
    child = os.fork()
    if child == 0:
        kv = mx.kv.create("dist_sync_pushpull")
        print(exchange(kv).asnumpy().tolist(), flush=True)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0


def other_program(kv):
    os.system("sleep 20 &")
    exchange(kv).asnumpy()
    print("fine", flush=True)


def naive_engine(kv):
    for i in range(5):
        array = exchange(kv, i)
        assert array.asnumpy()[0] == kv.num_workers
    report(lambda: kv.pushpull("mismatch", mx.nd.ones((2 + kv.rank,))))
    value = mx.nd.full((2,), kv.rank)
    kv.broadcast("value", [value, value.copy()], 1)
    assert value.asnumpy()[0] == 1
    kv.barrier()
    print("fine", flush=True)


def naive_engine_in_other_order(kv):
    keys = ["a", "b"] if kv.rank == 0 else ["b", "a"]
    error = report(lambda: exchange(kv, keys[0]))
    assert error is not None


def one_engine_thread(kv):
    arrays = [mx.nd.ones((100,)) for _ in range(50)]
    order = range(50) if kv.rank == 0 else range(49, -1, -1)
    for i in order:
        arrays[i] *= 2
        kv.pushpull(i, arrays[i])
        arrays[i] += 1
    for array in arrays:
        assert array.asnumpy()[0] == 2 * kv.num_workers + 1
    print("fine", flush=True)


def closed(kv):
    exchange(kv)
    kv.close()
    report(lambda: exchange(kv))
    print("fine", flush=True)


if __name__ == "__main__":
    name = sys.argv[1]
    make = not name.startswith("fork_before")
    globals()[name](mx.kv.create("dist_sync_pushpull") if make else None)
