"""Writes the outcome of the cluster tests (a JUnit file) into the last section of a page."""

import datetime
import pathlib
import subprocess
import sys
import xml.etree.ElementTree as xml

MARK = "<!-- written by scripts/test_cluster.sh -->"


def version(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[0] if done.returncode == 0 else "?"


def outcome(case):
    for tag, word in (("failure", "FAILED"), ("error", "FAILED"), ("skipped", "skipped")):
        if case.find(tag) is not None:
            return word
    return "passed"


def main():
    report, page = map(pathlib.Path, sys.argv[1:])
    rows = {}
    for case in xml.parse(report).iter("testcase"):
        name = case.get("name").split("[")[0].removeprefix("test_").replace("_", " ")
        row = rows.setdefault((case.get("classname").rpartition(".")[2], name), [[], 0.0])
        row[0].append(outcome(case))
        row[1] += float(case.get("time"))
    lines = [MARK, f"{datetime.date.today()}, {version('mpirun', '--version')}, "
             f"{version('/usr/sbin/slurmctld', '-V')}.", "", "| what | cases | seconds |", "|---|---|---|"]
    for (group, name), (outcomes, seconds) in rows.items():
        where = {"test_open_mpi": "Open MPI", "test_slurm": "Slurm"}.get(group, group)
        cases = ", ".join(f"{outcomes.count(word)} {word}" for word in dict.fromkeys(outcomes))
        lines.append(f"| {where}: {name} | {cases} | {seconds:.0f} |")
    head = page.read_text().partition(MARK)[0]
    page.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
