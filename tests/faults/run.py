#!/usr/bin/env python3
"""Injures real groups and checks what every survivor says: who did it, how soon, and what is left.

    run.py --count 1000 --seed 7      a marathon of 1,000 kills and a good deal of everything else
    run.py --short --seed 7           what `make test` runs
    run.py --trial kill/cpp/gloo/4/shm/7.17      one trial again

As root, trials run in a network of their own. The exit code is 0 where every trial passed.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent),
                str(pathlib.Path(__file__).resolve().parents[2] / "bench")]

import injuries  # noqa: E402
import isolation  # noqa: E402
import report  # noqa: E402
import trial as trials  # noqa: E402
from job import ROOT  # noqa: E402
from private_redis import Redis  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--count", type=int, metavar="N", help="kills in a marathon")
    what.add_argument("--short", action="store_true", help="a run of about forty trials")
    what.add_argument("--trial", help="one trial, as a failure names it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=sorted(trials.KINDS), help="only these")
    parser.add_argument("--only", metavar="TEXT", action="append", default=[],
                        help="only trials whose name holds the text")
    parser.add_argument("--repeat", type=int, default=1, help="of the one trial")
    parser.add_argument("--patience", type=float, default=1.0,
                        help="limits are this many times as long (a busy machine, a sanitizer)")
    parser.add_argument("--time", type=float, default=float("inf"), metavar="SECONDS",
                        help="start no further trial after this long")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave the first N trials out")
    parser.add_argument("--long", action="store_true", help="waits of a minute take a minute")
    parser.add_argument("--worker", default=str(ROOT / "build" / "release" / "bin" / "faults_worker"))
    parser.add_argument("--report", metavar="FILE", help="write the result as a table for docs")
    parser.add_argument("--quiet", action="store_true", help="say only what fails, and the table")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the output of failing trials there")
    return parser.parse_args()


def chosen(options):
    if options.trial:
        return [trials.Trial.parse(options.trial)] * options.repeat
    if options.short:
        planned = trials.short(options.seed)
    else:
        planned = trials.marathon(options.count, options.seed)
    return [t for t in planned if (not options.kind or t.kind in options.kind)
            and all(text in str(t) for text in options.only)][options.skip:]


class Surroundings:
    """What trials need around them, made when first asked for."""

    def __init__(self, folder):
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._lab = None
        self.redis = self._keep_redis(Redis(folder))
        self.lab_redis = None

    def _keep_redis(self, redis):
        self._stack.callback(redis.end)
        return redis

    def lab(self):
        if self._lab is None:
            import labhosts
            self._lab = self._stack.enter_context(labhosts.Lab(4, "1gbit"))
            self.lab_redis = self._keep_redis(Redis(self._folder, lab=self._lab))
        return self._lab

    def processes(self):
        """Pids of the surroundings themselves, as they are now between trials."""
        return set(isolation.descendants())

    def close(self):
        self._stack.close()


def run_one(trial, surroundings, options, isolated, folder):
    on_lab = trial.kind == "link"
    lab = surroundings.lab() if on_lab else None
    redis = surroundings.lab_redis if on_lab else surroundings.redis
    known = surroundings.processes()
    ward = injuries.Ward(os.path.abspath(options.worker), [sys.executable, str(ROOT / "tests/faults/mxnet_worker.py")],
                         redis, lab, options.patience, options.long)
    folder.mkdir()
    job, run = injuries.KINDS[trial.kind](ward, folder, trial)
    try:
        said, took = run()
        job.read()
        said += injuries.checks.honest(job)
    finally:
        job.end()
    known.add(redis.pid)
    if trial.kind == "children":
        ranks = {event["pid"] for event in job.events}
        said += injuries.dismiss_children(known, ranks, trial.backend)
    left = injuries.leftovers(isolated and not on_lab, redis, known)
    said += [f"left behind: {thing}" for thing in left]
    injuries.dismiss(known, isolated)
    return said, took, job


def main():
    options = arguments()
    if os.geteuid() == 0 and shutil.which("ip") is None:
        sys.exit("faults: as root this needs the program ip: install the package iproute2")
    isolated = isolation.enter()
    isolation.adopt_orphans()
    planned = chosen(options)
    if not isolated:
        planned = [t for t in planned if t.kind != "link"]
        print("faults: no network namespaces here: no trials with links of their own, no look at sockets and /dev/shm")
    results, failed = [], 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as base:
        surroundings = Surroundings(base)
        try:
            for number, trial in enumerate(planned, 1):
                if time.monotonic() - start > options.time:
                    print(f"faults: {len(planned) - number + 1} trials left out for want of time")
                    break
                folder = pathlib.Path(base) / f"{number}"
                said, took, job = run_one(trial, surroundings, options, isolated, folder)
                results.append((trial, took, not said))
                if said:
                    failed += 1
                    report.failure(trial, said, job)
                    if options.keep:
                        shutil.copytree(folder, pathlib.Path(options.keep) / f"{number}",
                                        ignore=lambda _, names: [n for n in names if n.startswith("pymp-")])
                elif not options.quiet:
                    print(f"{number}/{len(planned)} {trial}: {took:.3f} s", flush=True)
                shutil.rmtree(folder)
        finally:
            surroundings.close()
    print(report.table(results))
    seconds = time.monotonic() - start
    print(f"{len(results) - failed} of {len(results)} trials passed, seed {options.seed}, {seconds:.0f} s")
    if options.report:
        report.write(options.report, results, options.seed, seconds)
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
