"""The contract of a store, call by call."""

import os
import random
import threading
import time

import mxnet as mx
import numpy as np
from mxnet.gluon import nn

import pushpull
from harness import equal, raised, total

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
DTYPES = ["float32", "float64", "float16", BFLOAT16, "int8", "uint8", "int32", "int64"]


def ones(kv, shape=(3,), ctx=None, dtype="float32"):
    """rank + 1 in every element."""
    return (mx.nd.ones(shape, ctx=ctx) * (kv.rank + 1)).astype(dtype)


def check_who_we_are(kv):
    assert kv.type.startswith("dist_sync_")
    assert 0 <= kv.rank < kv.num_workers
    assert kv.local_rank == kv.rank and kv.local_size == kv.num_workers
    assert isinstance(kv, mx.kv.KVStoreBase)
    ranks = mx.nd.zeros((kv.num_workers,))
    ranks[kv.rank] = 1
    kv.pushpull("ranks", ranks)
    equal(ranks, 1)


def check_names_of_types(kv):
    registry = mx.kv.KVStoreBase.kv_registry
    for name in ("dist_sync_mpi", "dist_sync_gloo", "dist_sync_gloo_redis", "dist_sync_pushpull"):
        store = registry[name]
        assert store.is_capable("optimizer") is False
        assert registry[name.replace("_", "-")] is store
    assert registry["dist_sync_gloo-redis"] is registry["dist_sync_gloo_redis"]
    assert kv.is_capable("Optimizer") is False
    raised(ValueError, kv.is_capable, "juggling")


def check_sums_of_every_dtype(kv):
    for dtype in DTYPES:
        for shape in [(1,), (2,), (3, 5), (1025,), (40, 50, 6)]:
            array = ones(kv, shape, dtype=dtype)
            kv.pushpull(f"sum {dtype}", array)
            equal(array, total(kv))
            assert array.dtype == np.dtype(dtype) or array.dtype == dtype
            out = mx.nd.zeros(shape).astype(dtype)
            source = ones(kv, shape, dtype=dtype)
            kv.pushpull(f"sum {dtype}", source, out)
            equal(out, total(kv))
            equal(source, kv.rank + 1)


def check_empty_and_scalar_arrays(kv):
    with mx.util.np_shape(True):
        for shape in [(0,), (0, 3), (2, 0, 4), ()]:
            array = mx.np.ones(shape) * (kv.rank + 1)
            kv.pushpull("odd shapes", array)
            assert array.shape == shape
            equal(array, total(kv))
            value = mx.np.full(shape, float(kv.rank))
            kv.broadcast("odd shapes", value, kv.num_workers - 1)
            equal(value, kv.num_workers - 1)
            devices = [mx.np.ones(shape, ctx=mx.cpu(i)) for i in range(2)]
            kv.pushpull("odd shapes on devices", devices)
            for each in devices:
                equal(each, 2 * kv.num_workers)


def check_names_of_arguments(kv):
    for call in (lambda a, o: kv.pushpull("args", a, o),
                 lambda a, o: kv.pushpull("args", a, o, 3),
                 lambda a, o: kv.pushpull("args", ins=a, outs=o, priority=-1),
                 lambda a, o: kv.pushpull("args", value=a, out=o),
                 lambda a, o: kv.pushpull(key="args", value=a, out=o, priority=2),
                 lambda a, o: kv.pushpull("args", [a], [o]),
                 lambda a, o: kv.pushpull("args", a, [o])):
        out = mx.nd.zeros((3,))
        call(ones(kv), out)
        equal(out, total(kv))
    for call in (lambda a: kv.pushpull("args"), lambda a: kv.pushpull("args", a, value=a),
                 lambda a: kv.pushpull("args", a, a, out=a)):
        raised(TypeError, call, ones(kv))


def check_keys(kv):
    for key in (0, 7, "a", "Ünicode key", "with blank", np.int64(9), 2 ** 40):
        array = ones(kv)
        kv.pushpull(key, array)
        equal(array, total(kv))
    assert "an int or a str" in raised(TypeError, kv.pushpull, 1.5, ones(kv))
    assert "an int or a str" in raised(TypeError, kv.pushpull, None, ones(kv))
    raised(ValueError, kv.pushpull, "", ones(kv))
    raised(ValueError, kv.pushpull, "a\0b", ones(kv))


def check_lists_of_keys(kv):
    keys = ["x", 5, "z"]
    arrays = [ones(kv) * (i + 1) for i in range(3)]
    kv.pushpull(keys, arrays)
    for i, array in enumerate(arrays):
        equal(array, total(kv) * (i + 1))
    values = [[ones(kv, ctx=mx.cpu(d)) for d in range(2)] for _ in keys]
    outs = [mx.nd.zeros((3,)) for _ in keys]
    kv.pushpull(tuple(keys), values, out=outs, priority=-4)
    for out in outs:
        equal(out, 2 * total(kv))
    assert "one entry per key" in raised(TypeError, kv.pushpull, keys, arrays[:2])
    assert "one entry per key" in raised(TypeError, kv.pushpull, keys, arrays[0])
    assert "one entry per key" in raised(TypeError, kv.pushpull, keys, arrays, arrays[:2])


def check_one_array_under_several_keys(kv):
    shared = ones(kv)
    kv.pushpull(["p", "q", "r"], [shared] * 3)
    equal(shared, total(kv))
    first, second = ones(kv), ones(kv) * 10
    kv.pushpull(["p", "q"], [first, second], out=[second, first])
    equal(second, total(kv))
    equal(first, 10 * total(kv))


def check_lists_of_devices(kv):
    devices = [mx.cpu(i) for i in range(3)]
    values = [ones(kv, ctx=ctx) * (i + 1) for i, ctx in enumerate(devices)]
    outs = [mx.nd.zeros((3,), ctx=ctx) for ctx in devices]
    kv.pushpull("devices", values, out=outs)
    for i in range(3):
        equal(outs[i], 6 * total(kv))
        equal(values[i], (i + 1) * (kv.rank + 1))
        assert outs[i].context == devices[i]
    kv.pushpull("devices", values)
    for value in values:
        equal(value, 6 * total(kv))
    one = mx.nd.zeros((3,), ctx=mx.cpu(1))
    kv.pushpull("devices", [ones(kv, ctx=ctx) for ctx in devices], one)
    equal(one, 3 * total(kv))
    kv.pushpull("devices", ones(kv), outs)
    for out in outs:
        equal(out, total(kv))
    for dtype in DTYPES:
        values = [ones(kv, ctx=ctx, dtype=dtype) for ctx in devices[:2]]
        kv.pushpull(f"devices {dtype}", values)
        for value in values:
            equal(value, 2 * total(kv))


def check_the_same_array_twice(kv):
    outs = [mx.nd.zeros((2,))] * 2
    kv.pushpull("twice", [mx.nd.ones((2,))] * 2, out=outs)
    equal(outs[0], 2 * kv.num_workers)
    kv.pushpull("twice", outs)
    equal(outs[0], 4 * kv.num_workers ** 2)


def check_broadcast_by_root(kv):
    for root in range(kv.num_workers):
        for dtype in DTYPES:
            array = ones(kv, (5,), dtype=dtype)
            kv.broadcast("root", array, root)
            equal(array, root + 1)
        for call in (lambda a: kv.broadcast("root", a, root, 3),
                     lambda a: kv.broadcast("root", a, np.int32(root), priority=-2),
                     lambda a: kv.broadcast("root", a, root_rank=root),
                     lambda a: kv.broadcast(key="root", value=a, root_rank=root, priority=1)):
            array = ones(kv)
            call(array)
            equal(array, root + 1)
        out = mx.nd.zeros((3,))
        kv.broadcast("root and out", ones(kv), out=out, root_rank=root)
        equal(out, root + 1)
        devices = [ones(kv, ctx=mx.cpu(i)) * (i + 1) for i in range(2)]
        kv.broadcast("root and devices", devices, root)
        for array in devices:
            equal(array, root + 1)
        keys = [ones(kv), ones(kv) * 10]
        kv.broadcast(["k1", 2], keys, root)
        equal(keys[0], root + 1)
        equal(keys[1], 10 * (root + 1))


def check_broadcast_in_mxnets_form(kv):
    for call in (lambda v, o: kv.broadcast("form", v, o),
                 lambda v, o: kv.broadcast("form", v, o, 5),
                 lambda v, o: kv.broadcast("form", v, out=o, priority=-1),
                 lambda v, o: kv.broadcast(key="form", value=v, out=[o])):
        value, out = ones(kv), mx.nd.zeros((3,))
        call(value, out)
        equal(out, 1)
        equal(value, kv.rank + 1)
    value = ones(kv)
    outs = [value, mx.nd.zeros((3,), ctx=mx.cpu(1)), mx.nd.zeros((3,), ctx=mx.cpu(2))]
    kv.broadcast(3, value, outs)  # as Trainer does it: the first one is the value itself
    for out in outs:
        equal(out, 1)
    values = [ones(kv) * (i + 1) for i in range(2)]
    outs = [[mx.nd.zeros((3,)) for _ in range(2)] for _ in range(2)]
    kv.broadcast(["m", "n"], values, outs)
    for i in range(2):
        for out in outs[i]:
            equal(out, i + 1)


def check_wrong_broadcasts(kv):
    array = ones(kv)
    n = kv.num_workers
    assert raised(pushpull.CollectiveError, kv.broadcast, "wrong", array, n) == (
        f"root rank {n} does not exist: there are {n} workers, 0 to {n - 1}")
    raised(pushpull.CollectiveError, kv.broadcast, "wrong", array, -1)
    raised(TypeError, kv.broadcast, "wrong", array)
    raised(TypeError, kv.broadcast, "wrong", array, True)
    raised(TypeError, kv.broadcast, "wrong", array, 0, root_rank=0)
    raised(TypeError, kv.broadcast, "wrong", 3, array)


def check_unsupported_calls(kv):
    array = ones(kv)
    instead = {
        "init": "broadcast(key, value, root_rank) gives every worker the same initial value",
        "push": "pushpull(key, ins, outs) sums over all workers in one call",
        "pull": "pushpull(key, ins, outs) already writes the sum to every worker",
        "row_sparse_pull": "use dense gradients (sparse_grad=False) with pushpull",
        "set_gradient_compression": "cast gradients to float16 or bfloat16 to send half the bytes",
        "set_optimizer": "run the optimizer on the workers (Trainer with update_on_kvstore=False)",
        "save_optimizer_states": "save the optimizer's states on a worker (Trainer.save_states)",
        "load_optimizer_states": "load the optimizer's states on every worker (Trainer.load_states)",
    }
    calls = {
        "init": lambda: kv.init("k", array),
        "push": lambda: kv.push("k", array, priority=1),
        "pull": lambda: kv.pull("k", out=array),
        "row_sparse_pull": lambda: kv.row_sparse_pull("k", out=array, row_ids=array),
        "set_gradient_compression": lambda: kv.set_gradient_compression({"type": "2bit"}),
        "set_optimizer": lambda: kv.set_optimizer(mx.optimizer.SGD()),
        "save_optimizer_states": lambda: kv.save_optimizer_states("file", dump_optimizer=True),
        "load_optimizer_states": lambda: kv.load_optimizer_states("file"),
    }
    for name, call in calls.items():
        assert raised(pushpull.UnsupportedError, call) == (
            f"{name} is not supported in kvstore with type {kv.type}; {instead[name]}")
        raised(NotImplementedError, call)
        raised(pushpull.CollectiveError, call)


def check_arrays_that_are_refused(kv):
    sparse = ones(kv, (3, 2)).tostype("row_sparse")
    sentence = ("key s: sparse arrays (row_sparse) are not exchanged: use array.tostype('default'), or "
                "dense gradients (grad_stype='default', Embedding(sparse_grad=False))")
    assert raised(pushpull.UnsupportedError, kv.pushpull, "s", sparse) == sentence
    assert raised(pushpull.UnsupportedError, kv.pushpull, "s", [sparse, sparse]) == sentence
    assert raised(pushpull.UnsupportedError, kv.broadcast, "s", sparse, 0) == sentence
    csr = ones(kv, (3, 2)).tostype("csr")
    assert raised(pushpull.UnsupportedError, kv.pushpull, "s", csr) == sentence.replace(
        "row_sparse", "csr")
    dense = sparse.tostype("default")
    kv.pushpull("s", dense)
    equal(dense, total(kv))
    truth = mx.np.array([True, False], dtype="bool")
    assert raised(pushpull.UnsupportedError, kv.pushpull, "b", truth) == (
        "key b: arrays of dtype bool are not exchanged: use float32, float64, float16, bfloat16, int8, "
        "uint8, int32 or int64, for example array.astype('uint8')")
    assert raised(pushpull.CollectiveError, kv.pushpull, "m", ones(kv), mx.nd.zeros((3, 1))) == (
        "key m: value is float32 (3,) but out is float32 (3, 1); they must be alike")
    assert raised(pushpull.CollectiveError, kv.pushpull, "m", ones(kv), ones(kv, dtype="int32")) == (
        "key m: value is float32 (3,) but out is int32 (3,); they must be alike")
    assert "must be alike" in raised(pushpull.CollectiveError, kv.pushpull, "m",
                                     [ones(kv), ones(kv, (4,))])
    for wrong in (3, None, [], [None], "text", np.ones(3)):
        raised(TypeError, kv.pushpull, "w", wrong)


def check_views(kv):
    base = mx.nd.arange(12).reshape((6, 2)) * 1
    kv.pushpull("view", base[2:4])
    expected = np.arange(12, dtype="float32").reshape(6, 2)
    expected[2:4] *= kv.num_workers
    equal(base, expected)
    kv.pushpull("view", base[0:2], base[4:6])
    expected[4:6] = expected[0:2] * kv.num_workers
    equal(base, expected)
    kv.pushpull("view", base[0].reshape((2, 1)))
    expected[0] *= kv.num_workers
    equal(base, expected)
    base.attach_grad()
    kv.pushpull("view", base.detach())
    equal(base, expected * kv.num_workers)


def check_views_that_overlap(kv):
    base = mx.nd.ones((6,))
    kv.pushpull("overlap", base[0:4], base[2:6])
    assert raised(pushpull.CollectiveError, base.asnumpy) == (
        "value and out of key overlap overlap without being the same: use separate arrays, or one array "
        "in place")
    array = ones(kv)
    kv.pushpull("overlap", array)
    equal(array, total(kv))


def check_arrays_in_onednn_layout(kv):
    layer = nn.Conv2D(32, 3, in_channels=16)
    layer.initialize()
    layer.hybridize()
    image = mx.nd.ones((8, 16, 16, 16))

    def weight():
        """While the inference pass that brings it into oneDNN's own layout may still be running."""
        layer(image)
        return layer.weight.data()

    def weight_now():
        # MXNet itself does not keep asnumpy() apart from a pass that is still running.
        array = weight()
        mx.nd.waitall()
        return array.asnumpy()

    kv.broadcast("layout", weight(), 0)
    start = weight_now()
    out = mx.nd.zeros(start.shape)
    for _ in range(5):
        kv.pushpull("layout", weight(), out)
        np.testing.assert_allclose(out.asnumpy(), start * kv.num_workers, rtol=1e-6)
        assert np.array_equal(weight_now(), start)
        kv.broadcast("layout", weight(), out)
        equal(out, start)
        kv.broadcast("layout", weight(), [layer.weight.data(), out])
        assert np.array_equal(weight_now(), start)
        kv.pushpull("layout", weight(), postscale=1 / kv.num_workers)
        np.testing.assert_allclose(weight_now(), start, rtol=1e-5)
        kv.pushpull("layout", mx.nd.array(start), weight(), postscale=1 / kv.num_workers)
        np.testing.assert_allclose(weight_now(), start, rtol=1e-5)
        kv.broadcast("layout", mx.nd.array(start), weight())
        assert np.array_equal(weight_now(), start)


def check_scales(kv):
    array = ones(kv)
    kv.pushpull("scaled", array, prescale=0.5, postscale=4.0)
    equal(array, 2 * total(kv))
    whole = ones(kv, dtype="int32")
    kv.pushpull("scaled int", whole, prescale=0.5)
    assert "cannot scale int32 by 0.5" in raised(pushpull.CollectiveError, whole.asnumpy)
    whole = ones(kv, dtype="int32")
    kv.pushpull("scaled int", whole)
    equal(whole, total(kv))


def check_any_order(kv):
    keys = list(range(200))
    random.Random(kv.rank).shuffle(keys)
    arrays = {key: mx.nd.full((10 + key,), key + kv.rank) for key in keys}
    for key in keys:
        kv.pushpull(f"order {key}", arrays[key], priority=-key)
    n = kv.num_workers
    for key in keys:
        equal(arrays[key], n * key + n * (n - 1) / 2)


def check_a_key_again_before_it_is_done(kv):
    arrays = [ones(kv, (1000,)) * (i + 1) for i in range(20)]
    for array in arrays:
        kv.pushpull("again", array)
    value = ones(kv)
    kv.broadcast("again", value, 0)
    kv.pushpull("again", value)
    for i, array in enumerate(arrays):
        equal(array, total(kv) * (i + 1))
    equal(value, kv.num_workers)


def check_dependencies_within_the_engine(kv):
    array = ones(kv, (100,))
    for _ in range(5):
        array = array * 2
        kv.pushpull("chain", array)
        array = array / kv.num_workers
    expected = total(kv) * 2 ** 5 / kv.num_workers
    np.testing.assert_allclose(array.asnumpy(), expected, rtol=1e-5)


def check_bulk_execution(kv):
    with mx.engine.bulk(30):
        array = ones(kv)
        array += 1
        array += 1
        kv.pushpull("bulk", array)
        array *= 2
    equal(array, 2 * (total(kv) + 2 * kv.num_workers))


def check_two_threads(kv):
    def work(name):
        for _ in range(30):
            array = ones(kv)
            kv.pushpull("threads", array)
            kv.pushpull(f"thread {name}", array)
            results.append(array)

    results = []
    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for array in results:
        equal(array, total(kv) * kv.num_workers)


def check_late_ranks(kv):
    if kv.rank % 2:
        time.sleep(1)
    array = ones(kv)
    kv.pushpull("late", array)
    equal(array, total(kv))


def check_barrier(kv):
    array = ones(kv, (100000,))
    kv.pushpull("before the barrier", array)
    for _ in range(3):
        kv.barrier()
    equal(array, total(kv))


def check_mismatches(kv):
    if kv.num_workers == 1:
        return
    odd = kv.rank == 1
    shape = ones(kv, (2,) if odd else (3,))
    kv.pushpull("shape differs", shape)
    dtype = ones(kv, dtype="float64" if odd else "float32")
    kv.pushpull("dtype differs", dtype)
    root = ones(kv)
    kv.broadcast("root differs", root, 1 if odd else 0)
    fine = ones(kv)
    kv.pushpull("nothing differs", fine)
    equal(fine, total(kv))
    for array, words in ((shape, ["shape differs", "(2)", "(3)"]),
                         (dtype, ["dtype differs", "float32", "float64"]),
                         (root, ["root differs", "root 0", "root 1"])):
        text = raised(pushpull.CollectiveError, array.asnumpy)
        for word in [*words, "rank 1 has"]:
            assert word in text, text
    mx.nd.waitall()
    for key in ("shape differs", "dtype differs"):
        array = ones(kv)
        kv.pushpull(key, array)
        equal(array, total(kv))


def check_input_that_failed(kv):
    # A standard deviation below zero fails in the engine; the exchange must not be waited for.
    source = mx.nd.random.normal(0, -1 if kv.rank == 0 else 1, shape=(3,))
    kv.pushpull("failed input", source)
    text = raised(mx.MXNetError, source.asnumpy)
    if kv.rank != 0:
        assert "failed input" in text and "rank 0" in text, text
        assert "the operation that was to compute its value failed or was dropped" in text, text
    array = ones(kv)
    kv.pushpull("failed input", array)
    equal(array, total(kv))


def check_two_stores(kv):
    other = mx.kv.create(kv.type)
    assert (other.rank, other.num_workers) == (kv.rank, kv.num_workers)
    arrays = [ones(kv) for _ in range(20)]
    for i, array in enumerate(arrays):
        (kv, other)[(i + kv.rank) % 2].pushpull(f"both {i - i % 2}", array)
    for array in arrays:
        equal(array, total(kv))
    other.close()
    other.close()
    assert "was closed" in raised(pushpull.CollectiveError, other.pushpull, "k", arrays[0])
    assert "was closed" in raised(pushpull.CollectiveError, other.broadcast, "k", arrays[0], 0)
    assert "was closed" in raised(pushpull.CollectiveError, other.barrier)
    third = mx.kv.create(kv.type)
    third.pushpull("k", arrays[0])
    equal(arrays[0], total(kv) * kv.num_workers)
    del third  # leaves the group as well
    kv.pushpull("still there", arrays[1])
    equal(arrays[1], total(kv) * kv.num_workers)


def check_arrays_of_other_devices(kv):
    shared = ones(kv, ctx=mx.Context("cpu_shared", 0))
    kv.pushpull("shared memory", shared)
    equal(shared, total(kv))

    # A GPU is not at hand: the first attempt is told that the array is not in host memory.
    def refuse_once(call):
        answers = iter([False])
        return lambda *arguments: next(answers, None) is None and call(*arguments)

    start_pushpull, start_broadcast = kv._start_pushpull, kv._start_broadcast
    try:
        array, out = ones(kv), mx.nd.zeros((3,))
        kv._start_pushpull = refuse_once(start_pushpull)
        kv.pushpull("elsewhere", array)
        equal(array, total(kv))
        array = ones(kv)
        kv._start_pushpull = refuse_once(start_pushpull)
        kv.pushpull("elsewhere", array, out)
        equal(out, total(kv))
        equal(array, kv.rank + 1)
        kv._start_broadcast = refuse_once(start_broadcast)
        kv.broadcast("elsewhere", array, kv.num_workers - 1)
        equal(array, kv.num_workers)
    finally:
        kv._start_pushpull, kv._start_broadcast = start_pushpull, start_broadcast


def check_names_in_the_profiler(kv):
    mx.profiler.set_config(profile_imperative=True, aggregate_stats=True,
                           filename=os.path.join(os.getcwd(), f"profile-{kv.rank}.json"))
    mx.profiler.set_state("run")
    array = ones(kv)
    kv.pushpull("profiled", array)
    kv.broadcast("profiled", array, 0)
    mx.nd.waitall()
    mx.profiler.set_state("stop")
    table = mx.profiler.dumps()
    assert "pushpull:profiled" in table and "broadcast:profiled" in table, table


def check_numpy_arrays(kv):
    array = mx.np.ones((2, 3)) * (kv.rank + 1)
    kv.pushpull("np", array)
    equal(array, total(kv))
    devices = [mx.np.ones((2, 3), ctx=mx.cpu(i)) for i in range(2)]
    outs = [mx.np.zeros((2, 3), ctx=mx.cpu(i)) for i in range(2)]
    kv.pushpull("np", devices, outs)
    for out in outs:
        equal(out, 2 * kv.num_workers)
    value = mx.np.full((4,), kv.rank)
    kv.broadcast("np", value, out=[value, outs[0].reshape(6)[0:4]])
    equal(value, 0)
