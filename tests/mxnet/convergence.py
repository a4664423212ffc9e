"""Trains the digits example in every way, with 1, 2 and 4 workers, from three seeds each; prints the table of
docs/mxnet.md. Takes some minutes: python tests/mxnet/convergence.py"""

import collections
import json
import pathlib
import sys
import tempfile

from conftest import SCRIPTS, Group

WORKERS = (1, 2, 4)


def main():
    accuracies = collections.defaultdict(list)
    for workers in WORKERS:
        folder = pathlib.Path(tempfile.mkdtemp())
        group = Group(folder, workers, [sys.executable, str(SCRIPTS / "convergence.py"), "results-{rank}",
                                        *sys.argv[1:]])
        try:
            group.succeed(timeout=3600)
        finally:
            group.end()
        for line in (folder / "results-0").read_text().splitlines():
            result = json.loads(line)
            accuracies[result["way"], result["precision"], result["devices"], workers].append(
                result["accuracy"])
    rows = sorted({key[:3] for key in accuracies})
    print("| by | gradients | devices | " + " | ".join(f"N={n}" for n in WORKERS) + " |")
    print("|---|---|---|" + "---|" * len(WORKERS))
    means = {key: 100 * sum(values) / len(values) for key, values in accuracies.items()}
    for way, precision, devices in rows:
        cells = (f"{means[way, precision, devices, n]:.2f}" for n in WORKERS)
        print(f"| {way} | {precision} | {devices} | " + " | ".join(cells) + " |")
    print(f"\nmeans between {min(means.values()):.2f} and {max(means.values()):.2f}: "
          f"{max(means.values()) - min(means.values()):.2f} points apart")


if __name__ == "__main__":
    main()
