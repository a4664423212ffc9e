"""What MXNet checks of a custom store, for every type name of this backend, with N workers."""

import mxnet as mx

from harness import equal

SHAPE = (4, 4)
INT_KEYS = [5, 7, 11]
STR_KEYS = ["b", "c", "d"]


def fresh(kv):
    """A new store, asked for by the name of its type."""
    return mx.kv.create(kv.type)


def filled(value, ctx=None):
    return mx.nd.full(SHAPE, value, ctx=ctx)


def check_broadcast_of_one_key(kv):
    for key in (3, "a"):
        store = fresh(kv)
        out = mx.nd.empty(SHAPE)
        store.broadcast(key, filled(1), out)
        equal(out, 1)
        outs = [mx.nd.empty(SHAPE)] * 3
        store.broadcast(key + key, filled(1), outs)
        for each in outs:
            equal(each, 1)


def check_broadcast_of_several_keys(kv):
    for keys in (INT_KEYS, STR_KEYS):
        store = fresh(kv)
        outs = [mx.nd.empty(SHAPE)] * len(keys)
        store.broadcast(keys, [filled(1)] * len(keys), outs)
        for out in outs:
            equal(out, 1)
        outs = [[mx.nd.empty(SHAPE)] * 2 for _ in keys]
        store.broadcast([key + key for key in keys], [filled(1)] * len(keys), outs)
        for devices in outs:
            for out in devices:
                equal(out, 1)


def check_sums_over_devices(kv):
    for key, keys in ((3, INT_KEYS), ("a", STR_KEYS)):
        store = fresh(kv)
        store.broadcast(key, filled(0), out=mx.nd.empty(SHAPE))
        devices = [mx.cpu(i) for i in range(4)]
        values = [filled(1, ctx) for ctx in devices]
        outs = [mx.nd.empty(SHAPE, ctx) for ctx in devices]
        store.pushpull(key, values, out=outs)
        for out in outs:
            equal(out, 4 * kv.num_workers)
        store.pushpull(key, values)
        for value in values:
            equal(value, 4 * kv.num_workers)

        count = len(keys)
        store.broadcast(keys, [filled(0)] * count, out=[mx.nd.empty(SHAPE)] * count)
        values = [[filled(2, ctx) for ctx in devices]] * count
        outs = [[mx.nd.empty(SHAPE, ctx) for ctx in devices]] * count
        store.pushpull(keys, values, out=outs)
        for lists in (outs, values):
            for out in lists[0]:
                equal(out, 8 * kv.num_workers if lists is outs else 2)
        store.pushpull(keys, values)
        for value in values[0]:
            equal(value, 8 * kv.num_workers)


def check_a_custom_store(kv):
    store = fresh(kv)
    out = mx.nd.empty((1,))
    store.broadcast(1, mx.nd.ones((1,)), out=out)
    equal(out, 1)
    assert type(store).is_capable("optimizer") is False
    store.broadcast(1, mx.nd.ones((1,)), out=out)
    equal(out, 1)
    arrays = [mx.nd.empty((1,))] * 2
    store.pushpull(1, [mx.nd.ones((1,))] * 2, out=arrays)
    for array in arrays:
        equal(array, 2 * kv.num_workers)
    store.pushpull(1, arrays)
    for array in arrays:
        equal(array, 4 * kv.num_workers ** 2)


def check_the_type(kv):
    assert fresh(kv).type == kv.type
