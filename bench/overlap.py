#!/usr/bin/env python3
"""How well the exchange hides behind the backward pass, through MXNet's engine, over test hosts.

  bench/overlap.py                              two hosts, 1 Gbit/s (root)
  bench/overlap.py --hosts 4 --rate 10gbit --backend gloo --json overlap.json
  bench/overlap.py --python ~/venv/bin/python   an interpreter with mxnet and pushpull

A model of equal layers runs on every host. Its backward is one operator per layer in MXNet's
engine, last layer first, which sleeps for as long as the layer's exchange takes alone and then lets
go of the gradient; each gradient is summed by kv.pushpull with priority minus its layer. Three
times, in medians over steps, each with its slowest rank:

  exchange   all gradients are there at once
  compute    the operators alone
  step       both: with L layers at least (L + 1) / L of the larger, as the gradient of the first
             layer comes last

The bar is (L + 1) / L + 0.07. Under "arrival" stands when the gradients come in where all are there
at once, as the mean position of the first and of the last quarter of the layers: priorities want
the first layers first.
"""
import argparse
import ctypes
import json
import os
import statistics
import sys
import tempfile
import time

BENCH = os.path.dirname(os.path.abspath(__file__))
SLACK = 0.07


# -- one rank -------------------------------------------------------------------------------------


class Context(ctypes.Structure):
    """MXNet's Context: processor 0."""
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Engine:
    """Pushes Python functions into MXNet's engine as operators on arrays."""
    FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

    def __init__(self, mx):
        self.library = mx.base._LIB  # pylint: disable=protected-access
        self.context = Context(1, 0)
        self.kept = []  # functions that the engine may still call

    def push(self, function, reads, writes):
        called = self.FUNCTION(lambda run_context, parameter: function())
        self.kept.append(called)

        def handles(arrays):
            return (ctypes.c_void_p * len(arrays))(*(array.handle for array in arrays))
        code = self.library.MXEnginePushSyncND(
            called, None, None, ctypes.byref(self.context), handles(reads), len(reads),
            handles(writes), len(writes), None, 0, b"overlap")
        if code != 0:
            raise RuntimeError("MXEnginePushSyncND failed")


class Model:
    def __init__(self, layers, layer_bytes, backend):
        import mxnet as mx  # pylint: disable=import-outside-toplevel
        import pushpull.mxnet  # pylint: disable=import-outside-toplevel,unused-import
        self.mx = mx
        self.kv = mx.kv.create("dist_sync_" + backend.replace("-", "_"))
        self.engine = Engine(mx)
        self.layers = range(layers)
        self.gradients = [mx.nd.ones((layer_bytes // 4,)) for _ in self.layers]
        self.activation = mx.nd.zeros((1,))  # what makes backward go from layer to layer

    def step(self, seconds, exchange, arrivals=None):
        """Seconds from the start of backward until everything is there."""
        self.mx.nd.waitall()
        self.kv.barrier()
        self.engine.kept.clear()
        began = time.perf_counter()
        for layer in reversed(self.layers):
            gradient = self.gradients[layer]
            if seconds:
                self.engine.push(lambda: time.sleep(seconds), [], [self.activation, gradient])
            if exchange:
                self.kv.pushpull(layer, gradient, priority=-layer)
            if arrivals is not None:
                self.engine.push(lambda layer=layer: arrivals.append(layer), [gradient], [])
        self.mx.nd.waitall()
        return time.perf_counter() - began

    def slowest(self, seconds):
        """The largest of all ranks' values: pushpull sums a row per rank."""
        row = self.mx.nd.zeros((self.kv.num_workers,), dtype="float64")
        row[self.kv.rank] = seconds
        self.kv.pushpull("slowest", row)
        return float(row.asnumpy().max())

    def measure(self, steps, seconds, exchange):
        times = [self.slowest(self.step(seconds, exchange)) for _ in range(steps + 1)]
        return statistics.median(times[1:])


def first_positions(model):
    arrivals = []
    model.step(0, True, arrivals)
    quarter = max(1, len(model.layers) // 4)

    def mean(layers):
        return statistics.mean(arrivals.index(layer) for layer in layers)
    return mean(model.layers[:quarter]), mean(model.layers[-quarter:])


def work(options):
    model = Model(options.layers, options.layer_bytes, options.backend)
    exchange = model.measure(options.steps, 0, True)
    pause = exchange / options.layers
    compute = model.measure(options.steps, pause, False)
    step = model.measure(options.steps, pause, True)
    first, last = first_positions(model)
    if model.kv.rank == 0:
        print(json.dumps({"layers": options.layers, "layer_bytes": options.layer_bytes,
                          "ranks": model.kv.num_workers, "backend": options.backend,
                          "exchange_s": exchange, "compute_s": compute, "step_s": step,
                          "ratio": step / max(exchange, compute),
                          "bar": (options.layers + 1) / options.layers + SLACK,
                          "arrival_of_first_quarter": first, "arrival_of_last_quarter": last}))
    model.kv.close()


# -- all of them ----------------------------------------------------------------------------------


def run(options):
    sys.path.insert(0, BENCH)
    from labhosts import Lab  # pylint: disable=import-outside-toplevel
    python = options.python or os.path.join(os.path.dirname(BENCH), ".venv", "bin", "python")
    if not os.path.exists(python):
        sys.exit("overlap.py: no Python with mxnet: run `make build`, or name one by --python")
    argv = [python, os.path.abspath(__file__), "--worker", *sys.argv[1:]]
    with Lab(options.hosts, options.rate) as lab, tempfile.TemporaryFile("w+") as output:
        env = {**os.environ, "PUSHPULL_SIZE": str(options.hosts),
               "PUSHPULL_SECRET": "of the bench", "MXNET_KVSTORE_BACKEND": options.backend,
               "PUSHPULL_RENDEZVOUS": f"tcp://{lab.hosts[0].address}:29500",
               # One for the operator that sleeps, one for the rest.
               "MXNET_CPU_WORKER_NTHREADS": "2"}
        ranks = [lab.popen(rank, argv, env={**env, "PUSHPULL_RANK": str(rank)}, stdout=output)
                 for rank in range(options.hosts)]
        failed = [rank for rank, process in enumerate(ranks) if process.wait() != 0]
        if failed:
            sys.exit(f"overlap.py: rank {failed[0]} failed")
        output.seek(0)
        result = json.loads(output.read())
    result["rate"] = options.rate
    return result


def show(result):
    for name in ("exchange", "compute", "step"):
        print(f"{name:10}{result[name + '_s'] * 1e3:9.1f} ms")
    verdict = "within" if result["ratio"] <= result["bar"] else "ABOVE"
    print(f"step / larger of both: {result['ratio']:.3f}, {verdict} {result['bar']:.3f}")
    print(f"arrival, of {result['layers']} layers: first quarter on average "
          f"{result['arrival_of_first_quarter']:.1f}., last quarter "
          f"{result['arrival_of_last_quarter']:.1f}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--backend", default="gloo", choices=("gloo", "gloo-redis"))
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--layer-bytes", type=int, default=4 << 20)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--python", help="an interpreter that has mxnet and pushpull")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    if options.hosts < 2:
        parser.error("an exchange needs two hosts")
    result = run(options)
    show(result)
    if options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump(result, file, indent=1)
    return None


if __name__ == "__main__":
    sys.exit(main())
