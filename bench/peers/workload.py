"""What `workload.h` is for the programs in C++: the same command line, checks and result file."""
import argparse
import json
import math
import os
import resource
import time


def parse_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="tensor", choices=["tensor", "fused", "latency"])
    parser.add_argument("--model", default="")
    parser.add_argument("--sizes", default="")
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--out", default=".")
    parser.add_argument("--variant", default="")
    options = parser.parse_args()
    if options.mode == "latency" and not options.sizes:
        parser.error("--mode latency needs --sizes")
    if options.mode != "latency" and not options.model:
        parser.error(f"--mode {options.mode} needs --model")
    return options


def series_counts(options):
    """(name, elements per call) of each series to time."""
    if options.mode == "latency":
        return [(size, [int(size) // 4]) for size in options.sizes.split(",")]
    with open(options.model, encoding="ascii") as lines:
        counts = [int(line.split()[0]) for line in lines][::-1]
    return [(options.mode, [sum(counts)] if options.mode == "fused" else counts)]


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(options, rank, size, prepare):
    """Checks and times every series.

    `prepare(series, counts)` makes the tensors and returns an object with
        fill(value)    sets every element of every tensor, and waits for it
        equals(value)  whether every element of every tensor has that value
        barrier()
        allreduce()    sums every tensor over all ranks, in place, and returns when all are complete
    """
    renew = int(120 / math.log2(size)) if size > 1 else 1 << 30
    done = []
    for name, counts in series_counts(options):
        tensors = prepare(name, counts)
        tensors.fill(rank + 1)
        tensors.allreduce()
        want = size * (size + 1) // 2
        if not tensors.equals(want):
            raise SystemExit(f"rank {rank}: a sum is not {want}")
        times, cpu = [], 0
        for i in range(options.warmup + options.iters):
            if i % renew == 0:  # ones become size^k after k steps
                tensors.fill(1)
            if i == options.warmup:
                cpu = cpu_seconds()
            tensors.barrier()
            start = time.perf_counter()
            tensors.allreduce()
            if i >= options.warmup:
                times.append((time.perf_counter() - start) * 1e6)
        done.append({"name": name, "bytes": 4 * sum(counts), "calls": len(counts),
                     "cpu_s": cpu_seconds() - cpu, "us": times})
    with open(os.path.join(options.out, f"{rank}.json"), "w", encoding="ascii") as out:
        json.dump({"rank": rank, "size": size, "series": done}, out)
