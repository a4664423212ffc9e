"""How trials went, for people."""

import collections
import statistics
import time

import trial as trials


def _shortened(event):
    return {name: value for name, value in event.items() if name not in ("again", "messages", "group")}


def failure(trial, said, job):
    print(f"FAILED {trial}")
    for line in said:
        print(f"  {line}")
    draw = trial.draw()
    print(f"  (victim: rank {draw.victim}, moment {draw.moment:.3f} s, {draw.bytes} bytes)")
    for event in job.events:
        if event["event"] in ("error", "create_failed", "hang", "closed"):
            print(f"  {_shortened(event)}")
    print(job.output())
    print(f"  again: make faults TRIAL={trial}", flush=True)


def _groups(results):
    groups = collections.defaultdict(list)
    for trial, took, passed in results:
        groups[trial.kind, trial.worker, trial.backend, trial.local].append((took, passed))
    order = list(trials.KINDS)
    return sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1:]))


def rows(results):
    for (kind, worker, backend, local), list_ in _groups(results):
        times = [took for took, _ in list_]
        yield (kind, worker, backend, local, len(list_), sum(passed for _, passed in list_),
               statistics.median(times), max(times))


def table(results):
    lines = [f"{'kind':9} {'worker':6} {'backend':10} {'local':8} {'trials':>6} {'passed':>6} "
             f"{'median s':>9} {'worst s':>8}"]
    for kind, worker, backend, local, count, passed, median, worst in rows(results):
        lines.append(f"{kind:9} {worker:6} {backend:10} {local:8} {count:6} {passed:6} {median:9.3f} "
                     f"{worst:8.3f}")
    return "\n".join(lines)


_START, _END = "<!-- result -->", "<!-- end of result -->"


def write(path, results, seed, seconds):
    """Replaces the result in a page between two marks."""
    passed = sum(ok for _, _, ok in results)
    lines = [f"{time.strftime('%Y-%m-%d')}, seed {seed}: {passed} of {len(results)} trials passed, in "
             f"{seconds / 60:.0f} minutes.", "",
             "| what | worker | backend | local | trials | passed | median s | worst s |",
             "|---|---|---|---|---|---|---|---|"]
    for kind, worker, backend, local, count, good, median, worst in rows(results):
        lines.append(f"| {trials.KINDS[kind]} | {worker} | {backend} | {local} | {count} | {good} | "
                     f"{median:.3f} | {worst:.3f} |")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    head, _, rest = text.partition(_START)
    tail = rest.partition(_END)[2]
    with open(path, "w", encoding="utf-8") as file:
        file.write(head + _START + "\n" + "\n".join(lines) + "\n" + _END + tail)
