"""Collective calls on arrays, in the manner of Horovod's.

They return at once; whoever reads a result waits for it. Calls that belong together must have the same
``name`` on all workers. Without a name they are told apart by their order, which must then be the same on
all workers.
"""

import pickle

import mxnet as mx
import numpy as np

from pushpull import _errors
from pushpull.mxnet import group

# Names for calls without one come again: a store remembers every name it has seen.
_UNNAMED = 64


def _key(call, name):
    if name is not None:
        return f"{call}:{name}"
    counts = group.kvstore().unnamed
    number = counts[call] = counts.get(call, -1) + 1
    return f"{call}:unnamed:{number % _UNNAMED}"


def allreduce_(tensor, average=True, name=None, priority=0, prescale_factor=1.0, postscale_factor=1.0):
    """Replaces ``tensor``, an array or one array per device, by the average (or, with ``average=False``, the
    sum) over all workers; gives it back. See allreduce()."""
    return _allreduce(tensor, tensor, average, name, priority, prescale_factor, postscale_factor)


def allreduce(tensor, average=True, name=None, priority=0, prescale_factor=1.0, postscale_factor=1.0):
    """The average (or the sum) of ``tensor`` over all workers, as a new array:
    postscale_factor * sum(prescale_factor * tensor), divided by size() for the average.

    Integers cannot be averaged. In float16 a sum of many workers may overflow: ``prescale_factor=1 / size(),
    average=False`` divides before it adds.
    """
    return _allreduce(tensor, _empty_like(tensor), average, name, priority, prescale_factor,
                      postscale_factor)


def _allreduce(tensor, out, average, name, priority, prescale_factor, postscale_factor):
    store = group.kvstore()
    if average:
        postscale_factor /= store.num_workers
    store.pushpull(_key("allreduce", name), tensor, None if out is tensor else out, priority=priority,
                   prescale=prescale_factor, postscale=postscale_factor)
    return out


def grouped_allreduce_(tensors, average=True, name=None, priority=0, prescale_factor=1.0,
                       postscale_factor=1.0):
    """allreduce_() of each; they travel together."""
    for i, tensor in enumerate(tensors):
        allreduce_(tensor, average, _nth(name, i), priority, prescale_factor, postscale_factor)
    return tensors


def grouped_allreduce(tensors, average=True, name=None, priority=0, prescale_factor=1.0,
                      postscale_factor=1.0):
    """allreduce() of each; they travel together."""
    return [allreduce(tensor, average, _nth(name, i), priority, prescale_factor, postscale_factor)
            for i, tensor in enumerate(tensors)]


def _nth(name, i):
    return None if name is None else f"{name}.{i}"


def allgather(tensor, name=None, priority=0):
    """The workers' arrays one after the other by rank, along the first axis, in which they may differ.

    Waits until all workers have told their lengths.
    """
    return _allgather(_key("allgather", name), tensor, priority)[0]


def _allgather(key, tensor, priority):
    """The joined arrays, and every worker's length."""
    store = group.kvstore()
    lengths = np.zeros(store.num_workers, dtype="int64")
    if not tensor.shape:
        raise _errors.invalid("allgather needs arrays with a first axis: reshape a scalar to (1,)")
    lengths[store.rank] = tensor.shape[0]
    lengths = _sum(store, f"{key}:lengths", lengths, priority)
    kind = type(tensor)
    out = (mx.np if kind is mx.np.ndarray else mx.nd).empty((int(lengths.sum()), *tensor.shape[1:]),
                                                            dtype=tensor.dtype, ctx=tensor.context)
    begin = 0
    for root, length in enumerate(lengths.tolist()):
        if length:
            piece = out[begin:begin + length]
            store.broadcast(f"{key}:{root}", tensor if root == store.rank else piece, piece,
                            priority=priority, root_rank=root)
        begin += length
    return out, lengths


def grouped_allgather(tensors, name=None, priority=0):
    """allgather() of each."""
    return [allgather(tensor, _nth(name, i), priority) for i, tensor in enumerate(tensors)]


def broadcast_(tensor, root_rank, name=None, priority=0):
    """Replaces ``tensor`` by that of worker ``root_rank``; gives it back."""
    group.kvstore().broadcast(_key("broadcast", name), tensor, root_rank=root_rank, priority=priority)
    return tensor


def broadcast(tensor, root_rank, name=None, priority=0):
    """The array of worker ``root_rank``, as a new array."""
    out = _empty_like(tensor)
    group.kvstore().broadcast(_key("broadcast", name), tensor, out, root_rank=root_rank, priority=priority)
    return out


def broadcast_object(obj, root_rank=0, name=None):
    """Any object that can be pickled, of worker ``root_rank``; waits for it."""
    store = group.kvstore()
    key = _key("object", name)
    data = pickle.dumps(obj) if store.rank == root_rank else b""
    length = mx.nd.array([len(data)], dtype="int64")
    store.broadcast(f"{key}:length", length, root_rank=root_rank)
    content = np.zeros(int(length.asscalar()), dtype="uint8")
    if store.rank == root_rank:
        content[:] = np.frombuffer(data, dtype="uint8")
    content = mx.nd.array(content, dtype="uint8")
    store.broadcast(f"{key}:content", content, root_rank=root_rank)
    return obj if store.rank == root_rank else pickle.loads(content.asnumpy().tobytes())


def allgather_object(obj, name=None):
    """The list of all workers' objects, by rank; waits for them."""
    data = np.frombuffer(pickle.dumps(obj), dtype="uint8")
    joined, lengths = _allgather(_key("objects", name), mx.nd.array(data, dtype="uint8"), 0)
    joined = joined.asnumpy()
    ends = np.cumsum(lengths)
    return [pickle.loads(joined[end - length:end].tobytes()) for end, length in zip(ends, lengths)]


def join():
    """For a worker that has run out of data; gives the worker that joined last, when all have.

    See CollectiveStore.join; DistributedTrainer.join also brings the parameters up to date.
    """
    return group.kvstore().join()


def _sum(store, key, numbers, priority):
    total = mx.nd.array(numbers, dtype=numbers.dtype)
    store.pushpull(key, total, priority=priority)
    return total.asnumpy()


def _empty_like(tensor):
    if isinstance(tensor, (list, tuple)):
        return [_empty_like(each) for each in tensor]
    make = mx.np if isinstance(tensor, mx.np.ndarray) else mx.nd
    return make.empty(tensor.shape, dtype=tensor.dtype, ctx=tensor.context)
