"""Runs the check_* functions of scripts on every rank of a group, in order, and writes down the results.

``harness.py RESULTS SCRIPT...``, where {rank} in RESULTS stands for the rank. Each check gets the
store. A check that fails ends its process, so that the other ranks do not wait for it.
"""

import importlib
import json
import os
import sys
import traceback

import mxnet as mx

import pushpull.mxnet  # noqa: F401


def main(results, *scripts):
    modules = [importlib.import_module(script.removesuffix(".py")) for script in scripts]
    kv = mx.kv.create("dist_sync_pushpull")
    with open(results.format(rank=kv.rank), "w") as file:
        for module in modules:
            mx.random.seed(100 + kv.rank)
            for name, check in list(vars(module).items()):
                if name.startswith("check_"):
                    _run_one(f"{module.__name__}.{name.removeprefix('check_')}", check, kv, file)


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


if __name__ == "__main__":
    main(*sys.argv[1:])
