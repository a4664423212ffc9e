"""Lists of arrays: per device, per key."""

import ctypes

import mxnet as mx
from mxnet.ndarray import NDArray

from pushpull import _errors


def as_list(argument, given):
    """An array, or a list of at least one array, as a list."""
    if isinstance(given, NDArray):
        return [given]
    if isinstance(given, (list, tuple)) and given:
        for array in given:
            if not isinstance(array, NDArray):
                raise TypeError(f"{argument} must hold mxnet arrays, not {type(array).__name__}")
        return list(given)
    what = "an empty list" if isinstance(given, (list, tuple)) else type(given).__name__
    raise TypeError(f"{argument} must be an mxnet array or a list of them, not {what}")


def check_alike(name, argument, listed):
    first = listed[0]
    for array in listed[1:]:
        if array.shape != first.shape or array.dtype != first.dtype:
            raise _errors.invalid(
                f"key {name.decode()}: the arrays of {argument} must be alike, but there are "
                f"{first.dtype} {first.shape} and {array.dtype} {array.shape}")


def split_keys(call, keys, ins, outs):
    """(key, ins, outs) for each key. Values are taken as they were before the first result is written,
    where the same array serves several keys."""
    for argument, given in (("value", ins), ("out", outs)):
        if given is None and argument == "out":
            continue
        if not isinstance(given, (list, tuple)) or len(given) != len(keys):
            have = f"{len(given)}" if isinstance(given, (list, tuple)) else type(given).__name__
            raise TypeError(f"{call}() with {len(keys)} keys needs a list of {len(keys)} for {argument}, "
                            f"one entry per key, not {have}")
    if outs is None and _any_shared(ins):
        outs = ins
        ins = [_copies(entry) for entry in ins]
    elif outs is not None and _written_before_read(ins, outs):
        ins = [_copies(entry) for entry in ins]
    return [(key, ins[i], None if outs is None else outs[i]) for i, key in enumerate(keys)]


def _chunks(entry):
    """Identities of the memory blocks of an array or a list of arrays; see chunk_of() in the bridge."""
    entries = entry if isinstance(entry, (list, tuple)) else [entry]
    return {ctypes.c_void_p.from_address(array.handle.value).value for array in entries
            if isinstance(array, NDArray)}


def _any_shared(entries):
    seen = set()
    for entry in entries:
        chunks = _chunks(entry)
        if seen & chunks:
            return True
        seen |= chunks
    return False


def _written_before_read(ins, outs):
    written = set()
    for source, target in zip(ins, outs):
        if written & _chunks(source):
            return True
        written |= _chunks(target)
    return False


def _copies(entry):
    if isinstance(entry, (list, tuple)):
        return [_copies(array) for array in entry]
    return entry.copy() if isinstance(entry, NDArray) else entry


def sum_on_host(listed):
    """A new array in host memory with the sum, by MXNet's own operators."""
    host = mx.cpu()
    staged = [_plain(array).copyto(host) if len(listed) == 1 or array.context != host
              else _plain(array) for array in listed]
    return staged[0] if len(staged) == 1 else mx.nd.add_n(*staged)


def copy_to_all(source, targets):
    """Copies to each target, on whatever device it is, by MXNet's own operators."""
    for target in targets:
        if target is not source:
            _plain(source).copyto(_plain(target))


def _plain(array):
    """The array as MXNet's classic operators take it (numpy-style arrays are refused by them)."""
    return array.as_nd_ndarray() if isinstance(array, mx.np.ndarray) else array
