"""One rank of ``pushpull bench --level mxnet``, whose child process this is (launcher/bench/mxnet_measurer.cc).

Reads what to measure from standard input, a JSON object; answers on standard output, a JSON object per line:
who this rank is; now and then how many iterations are done; and for each case what all ranks found.
"""

import ctypes
import json
import os
import resource
import sys
import time

import numpy as np

from pushpull._run import forget_parameter_server

_PERIOD = 61
_EXACT_UP_TO = {"int8": 127, "uint8": 255, "bfloat16": 256, "float16": 2048}
_PROGRESS_EVERY = 0.1
_COPYING_AT_MOST = 0.1
_COPIES_AT_MOST = 10
_SAMPLE_AT_LEAST = 50e-6


class Pattern:
    """Values that are sent and sums that are expected: launcher/bench/pattern.h says which, and why."""

    def __init__(self, dtype, ranks):
        self._dtype = dtype
        self._ranks = ranks
        self._modulus = min(max(_EXACT_UP_TO.get(dtype, 1 << 24) // ranks + 1, 2), 1000)

    def values(self, count, rank):
        """What a rank contributes, as bytes."""
        return self._encoded(count, self._period(rank))

    def sums(self, count):
        """What the sum over all ranks is, as bytes."""
        return self._encoded(count, sum(self._period(rank) for rank in range(self._ranks)))

    def _period(self, rank):
        return np.arange(1, _PERIOD + 1, dtype=np.int64) * (rank + 1) % self._modulus

    def _encoded(self, count, period):
        if self._dtype == "bfloat16":
            encoded = (period.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        else:
            encoded = period.astype(self._dtype)
        return np.resize(encoded, count).view(np.uint8)


def element_type(name):
    """As MXNet wants it."""
    return np.dtype([("bfloat16", np.uint16)]) if name == "bfloat16" else name


class Bytes:
    """The memory of an MXNet array, which the engine must not be using."""

    def __init__(self, mx, array, size):
        self._mx, self._array, self._size = mx, array, size

    def view(self):
        """As an array of bytes."""
        address = ctypes.c_void_p()
        self._mx.base.check_call(
            self._mx.base._LIB.MXNDArrayGetData(self._array.handle, ctypes.byref(address)))
        return np.ctypeslib.as_array((ctypes.c_uint8 * self._size).from_address(address.value))


class Case:
    """One case on this rank."""

    def __init__(self, mx, store, request, number, answer):
        self._mx, self._store, self._request, self._answer = mx, store, request, answer
        self._counts = request["cases"][number]["counts"]
        self._keys = [f"bench.{number}.{i}" for i in range(len(self._counts))]
        self._results_key = f"bench.{number}.results"
        self._pattern = Pattern(request["dtype"], store.num_workers)
        self._arrays = [mx.nd.zeros((count,), dtype=element_type(request["dtype"]))
                        for count in self._counts]
        mx.nd.waitall()
        size = np.dtype(element_type(request["dtype"])).itemsize
        self._bytes = [Bytes(mx, array, count * size)
                       for array, count in zip(self._arrays, self._counts)]

    def run(self):
        """-> what all ranks found."""
        right = self._check()
        for each in self._bytes:
            each.view()[:] = 0  # zeros stay zeros, however often they are summed
        copies = self._time_copies()
        seconds, cpu = self._time_iterations()
        copies += self._time_copies()
        right = self._check() and right
        found = self._exchange([*seconds, cpu, 0.0 if right else 1.0])
        wrong = [rank for rank, row in enumerate(found)
                 if row[-1] != 0 or (rank == self._store.rank and not right)]
        return {"seconds": found[:, :-2].T.tolist(), "cpu_seconds": found[:, -2].tolist(),
                "memcpy_seconds": float(np.median(copies)) if copies else 0.0, "wrong_ranks": wrong}

    def _step(self):
        """The first call has the last layer's gradient, which is needed last."""
        broadcast = self._request["op"] == "broadcast"
        for priority, (key, array) in enumerate(zip(self._keys, self._arrays)):
            if broadcast:
                self._store.broadcast(key, array, root_rank=0, priority=priority)
            else:
                self._store.pushpull(key, array, priority=priority)
        self._mx.nd.waitall()

    def _check(self):
        """One exchange of known values."""
        rank = self._store.rank
        for each, count in zip(self._bytes, self._counts):
            each.view()[:] = self._pattern.values(count, rank)
        self._step()
        for i, (each, count) in enumerate(zip(self._bytes, self._counts)):
            got = each.view()
            expected = (self._pattern.values(count, 0) if self._request["op"] == "broadcast"
                        else self._pattern.sums(count))
            if not np.array_equal(got, expected):
                element = int(np.flatnonzero(got != expected)[0]) * count // len(got)
                print(f"pushpull bench: rank {rank}: tensor {i} of {len(self._counts)}: element {element} "
                      "is wrong", file=sys.stderr)
                return False
        return True

    def _time_iterations(self):
        warmup, iterations = self._request["warmup"], self._request["iters"]
        seconds, cpu, told = [], 0.0, time.monotonic()
        for i in range(warmup + iterations):
            if i == warmup:
                cpu = _cpu_seconds()
            if not self._request["latency"] or i == 0:
                self._store.barrier()
            start = time.perf_counter()
            self._step()
            end = time.perf_counter()
            if i >= warmup:
                seconds.append(end - start)
            if self._store.rank == 0 and time.monotonic() - told > _PROGRESS_EVERY:
                self._answer({"done": len(seconds)})
                told = time.monotonic()
        return seconds, (_cpu_seconds() - cpu) / iterations

    def _time_copies(self):
        """Seconds for a memcpy of the arrays, on rank 0 while the others wait."""
        taken = []
        if self._store.rank == 0:
            sources = [each.view() for each in self._bytes]
            targets = [np.zeros_like(source) for source in sources]
            end, repeat = time.perf_counter() + _COPYING_AT_MOST, 1
            while len(taken) < _COPIES_AT_MOST and time.perf_counter() < end:
                start = time.perf_counter()
                for _ in range(repeat):
                    for target, source in zip(targets, sources):
                        ctypes.memmove(target.ctypes.data, source.ctypes.data, source.nbytes)
                took = time.perf_counter() - start
                if took < _SAMPLE_AT_LEAST:
                    repeat *= 2
                else:
                    taken.append(took / repeat)
        self._store.barrier()
        return taken

    def _exchange(self, row):
        """Every rank's row, by a sum in which each fills in its own."""
        table = np.zeros((self._store.num_workers, len(row)))
        table[self._store.rank] = row
        array = self._mx.nd.array(table, dtype="float64")
        self._store.pushpull(self._results_key, array)
        return array.asnumpy()


def _cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _count_hosts(mx, store):
    firsts = mx.nd.array([1.0 if store.local_rank == 0 else 0.0])
    store.pushpull("bench.hosts", firsts)
    return round(float(firsts.asscalar()))


def main():
    """Runs all cases."""
    request = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed does not belong among the answers

    def answer(message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    forget_parameter_server(os.environ)
    import mxnet as mx
    import pushpull.mxnet  # noqa: F401  registers the store types
    store = mx.kv.create("dist_sync_pushpull")
    answer({"rank": store.rank, "size": store.num_workers, "hosts": _count_hosts(mx, store)})
    for number in range(len(request["cases"])):
        answer(Case(mx, store, request, number, answer).run())
    store.close()


if __name__ == "__main__":
    main()
