"""Runs the check_* functions of a script on every rank of a group, in order, and writes down the results.

The script is started as ``script.py RESULTS``, where {rank} in RESULTS stands for the rank. Each check gets
the store. A check that fails ends its process, so that the other ranks do not wait for it.
"""

import json
import os
import sys
import traceback

import mxnet as mx

import pushpull.mxnet  # noqa: F401


def run(namespace, store=None):
    kv = store or mx.kv.create("dist_sync_pushpull")
    mx.random.seed(100 + kv.rank)
    with open(sys.argv[1].format(rank=kv.rank), "w") as results:
        for name, check in namespace.items():
            if name.startswith("check_"):
                _run_one(name, check, kv, results)


def _run_one(name, check, kv, results):
    error = None
    try:
        check(kv)
        mx.nd.waitall()
        kv.barrier()
    except BaseException:
        error = traceback.format_exc()
    json.dump({"name": name, "error": error}, results)
    results.write("\n")
    results.flush()
    if error:
        print(f"rank {kv.rank}: {name}\n{error}", file=sys.stderr, flush=True)
        os._exit(1)


def raised(kind, call, *args, **kwargs):
    """The text of the exception that the call raises; it must be of this kind."""
    try:
        call(*args, **kwargs)
    except kind as error:
        return str(error)
    raise AssertionError(f"{call} did not raise {kind.__name__}")


def equal(array, expected):
    import numpy as np
    got = array.astype("float32").asnumpy() if _is_bfloat16(array) else array.asnumpy()
    assert np.array_equal(got, np.broadcast_to(expected, got.shape)), f"{got} is not {expected}"


def _is_bfloat16(array):
    return "bfloat16" in str(array.dtype)


def total(kv):
    """The sum over all ranks of rank + 1."""
    return kv.num_workers * (kv.num_workers + 1) / 2
