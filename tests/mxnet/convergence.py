"""Trains the digits example in every way, with 1, 2 and 4 workers, from three seeds each; prints the table of
docs/mxnet.md (half an hour on two cores): convergence.py [--workers 1,2,4] [--results FOLDER] [options of
scripts/convergence.py]. What is in the folder already is not run again."""

import argparse
import collections
import json
import pathlib
import sys
import tempfile

from conftest import SCRIPTS, Group


def train(folder, workers, options):
    group = Group(folder, workers, [sys.executable, str(SCRIPTS / "convergence.py"), "results-{rank}", *options])
    try:
        group.succeed(timeout=3600)
    finally:
        group.end()
    (folder / "results-0").rename(folder / "results")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--results", type=pathlib.Path)
    options, rest = parser.parse_known_args()
    results = options.results or pathlib.Path(tempfile.mkdtemp())
    sizes = [int(size) for size in options.workers.split(",")]
    accuracies = collections.defaultdict(list)
    for workers in sizes:
        folder = results / str(workers)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "results").exists():
            train(folder, workers, rest)
        for line in (folder / "results").read_text().splitlines():
            result = json.loads(line)
            accuracies[result["way"], result["precision"], result["devices"], workers].append(
                result["accuracy"])
    rows = sorted({key[:3] for key in accuracies})
    print("| by | gradients | devices | " + " | ".join(f"N={n}" for n in sizes) + " |")
    print("|---|---|---|" + "---|" * len(sizes))
    means = {key: 100 * sum(values) / len(values) for key, values in accuracies.items()}
    for way, precision, devices in rows:
        cells = (f"{means[way, precision, devices, n]:.2f}" for n in sizes)
        print(f"| {way} | {precision} | {devices} | " + " | ".join(cells) + " |")
    print(f"\nmeans between {min(means.values()):.2f} and {max(means.values()):.2f}: "
          f"{max(means.values()) - min(means.values()):.2f} points apart")


if __name__ == "__main__":
    main()
