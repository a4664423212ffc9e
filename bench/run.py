#!/usr/bin/env python3
"""Measures pushpull beside its peers: the same sums, in one run, round by round.

    bench/run.py --full        every library, one host and shaped test hosts (about an hour; root)
    bench/run.py --quick       the main ones, in less than five minutes
    bench/run.py --tiny        next to no work: proof that everything here still runs (seconds)
    bench/run.py --full --group host-2,1gbit-4 --peer pushpull-gloo,openmpi --rounds 5
    bench/run.py --list        groups and peers
    bench/run.py --page bench/results/FILE.json...     the page again, from earlier runs
    bench/run.py --publish bench/results/FILE.json...  what README quotes

Each round runs every case of a group once, so that what others do on the machine hits all alike; it
is recorded with each figure. A step counts with its slowest rank, a round with the median of its
steps, a case with the median of its rounds. Ratios are taken within a round. What cannot be had is
skipped, with the reason. Writes bench/results/<date>-<suite>.json and bench/results/index.html.
"""
import argparse
import dataclasses
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import labhosts  # noqa: E402
from harness import load, measure, page, plan, publish, results  # noqa: E402
from harness.peers import BENCH, catalogue  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    suite = parser.add_mutually_exclusive_group(required=True)
    for name in plan.SUITES:
        suite.add_argument(f"--{name}", dest="suite", action="store_const", const=name)
    suite.add_argument("--list", action="store_true", help="groups and peers")
    suite.add_argument("--page", nargs="+", metavar="FILE", help="only make the page from results")
    suite.add_argument("--publish", nargs="+", metavar="FILE",
                       help="only write results/published.* and README's table from results")
    parser.add_argument("--group", help="only these groups, by comma")
    parser.add_argument("--peer", help="only these peers, by comma")
    parser.add_argument("--mode", help="only these modes, by comma: tensor, fused, latency")
    parser.add_argument("--model", help="shape list in bench/models/, without .txt")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--iters", type=int, help="timed steps per round")
    parser.add_argument("--warmup", type=int, help="untimed steps before them")
    parser.add_argument("--budget", type=float, metavar="SECONDS",
                        help="start no further case after this long (270 with --quick)")
    parser.add_argument("--quiet", type=float, default=0, metavar="SECONDS",
                        help="wait up to this long for an idle machine before each case")
    parser.add_argument("--out", default=os.path.join(BENCH, "results"), help="folder for results")
    parser.add_argument("--logs", metavar="DIR", help="keep the output of every case here")
    parser.add_argument("--no-build", action="store_true", help="take the programs as they are")
    options = parser.parse_args()
    if options.suite == "quick" and options.budget is None:
        options.budget = 270
    return options


def choose(options, peers):
    """The suite's groups, as the command line changes them."""
    changes = {key: getattr(options, key) for key in ("rounds", "iters", "warmup", "model")
               if getattr(options, key) is not None}
    chosen = [dataclasses.replace(group, **changes) for group in plan.SUITES[options.suite]()]
    if options.group:
        names = options.group.split(",")
        unknown = set(names) - {group.name for group in chosen}
        if unknown:
            sys.exit(f"bench: no group '{unknown.pop()}' in --{options.suite}; it has "
                     f"{', '.join(group.name for group in chosen)}")
        chosen = [group for group in chosen if group.name in names]
    if options.peer:
        names = tuple(options.peer.split(","))
        unknown = set(names) - set(peers)
        if unknown:
            sys.exit(f"bench: no peer '{unknown.pop()}'; known are {', '.join(peers)}")
        chosen = [dataclasses.replace(group, peers=names) for group in chosen]
    if options.mode:
        wanted = options.mode.split(",")
        chosen = [dataclasses.replace(group, modes=tuple(m for m in group.modes if m in wanted))
                  for group in chosen]
    return chosen


def build_programs():
    done = subprocess.run([os.path.join(BENCH, "setup_peers.sh"), "programs"], check=False)
    if done.returncode != 0:
        print("bench: not every program could be compiled; what needs them is skipped")


def cannot_run(peer, group):
    if group.place.in_lab:
        if not peer.in_lab:
            return "measured on one host only"
        if reason := labhosts.why_not():
            return reason
    elif not peer.on_one_host:
        return "measured between hosts only"
    return peer.missing()


def cases_of(group, peers):
    """(peer, mode) to run, and cases that cannot be."""
    runnable, skipped = [], []
    for peer in (peers[name] for name in group.peers):
        reason = cannot_run(peer, group)
        modes = [mode for mode in group.modes if mode in peer.modes]
        if reason:
            skipped += [results.new_case(peer, mode, skipped=reason) for mode in modes]
        else:
            runnable += [(peer, mode) for mode in modes]
    return runnable, skipped


class Runner:
    def __init__(self, options, peers):
        self.options, self.peers = options, peers
        self.started = time.monotonic()

    def over_budget(self):
        return self.options.budget and time.monotonic() - self.started > self.options.budget

    def run_group(self, group):
        record = results.new_group(group)
        runnable, record["cases"] = cases_of(group, self.peers)
        for reason, titles in results.skipped(record).items():
            print(f"  skipped: {', '.join(titles)}: {reason}", flush=True)
        found, failed = {}, {}
        for number in range(group.rounds):
            for peer, mode in runnable:
                if (peer, mode) in failed:
                    continue
                if self.over_budget():
                    failed[peer, mode] = "the time budget was used up"
                    continue
                try:
                    self.run_case(group, peer, mode, number, found)
                except measure.CaseFailed as error:
                    failed[peer, mode] = str(error)
                    print(f"  {peer.name} {mode}: {error}", flush=True)
        record["cases"] += found.values()
        measured = {(case["peer"], case["mode"]) for case in found.values()}
        record["cases"] += [results.new_case(peer, mode, skipped=reason)
                            for (peer, mode), reason in failed.items()
                            if (peer.name, mode) not in measured]
        return record

    def run_case(self, group, peer, mode, number, found):
        if self.options.quiet:
            load.wait_until_quiet(self.options.quiet)
        for name, series in measure.run_once(peer, group, mode, self.options.logs).items():
            case = found.get((peer, mode, name))
            if case is None:
                wire = None
                if group.place.in_lab and mode != "latency":
                    wire = group.place.wire_us(series["bytes"])
                case = results.new_case(peer, mode, series["bytes"], wire)
                found[peer, mode, name] = case
            case["rounds"].append(series["round"])
            once = series["round"]
            print(f"  round {number + 1}/{group.rounds} {peer.name:22} "
                  f"{results.mode_text(case):10} {results.show_us(once['median_us']):>10}   "
                  f"others {once['foreign_cpus']:.2f} CPUs", flush=True)


def print_list(peers):
    for suite, make in plan.SUITES.items():
        print(f"--{suite}")
        for group in make():
            print(f"  {group.name:12} {group.title}: {', '.join(group.peers)}")
    print("peers")
    for peer in peers.values():
        print(f"  {peer.name:22} {peer.title} ({peer.level}): {peer.missing() or 'ready'}")


def main():
    options = parse_arguments()
    peers = catalogue()
    if options.list:
        print_list(peers)
        return 0
    os.makedirs(options.out, exist_ok=True)
    page_path = os.path.join(options.out, "index.html")
    if options.page:
        page.write([publish.load(path) for path in options.page], page_path)
        print(f"bench: {page_path}")
        return 0
    if options.publish:
        publish.publish([publish.load(path) for path in options.publish], options.out,
                        os.path.join(os.path.dirname(BENCH), "README.md"))
        return 0
    groups = choose(options, peers)
    measure.adopt_orphans()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if not options.no_build:
        build_programs()
    outcome = {"context": results.context(options.suite), "groups": []}
    stamp = time.strftime("%Y%m%d-%H%M%S")
    path = os.path.join(options.out, f"{stamp}-{options.suite}.json")
    runner = Runner(options, peers)
    for group in groups:
        print(f"{group.title} ({group.name})", flush=True)
        outcome["groups"].append(runner.run_group(group))
        results.write(outcome, path)  # an interrupted run leaves what it has
        page.write([outcome], page_path)
    print(f"\n{results.markdown(outcome)}\nbench: {path}\nbench: {page_path}")
    return 0 if any(results.measured(group) for group in outcome["groups"]) else 1


if __name__ == "__main__":
    sys.exit(main())
