"""Runs all tests: ctest (C++), then pytest; ends with one line of totals, and fails if any failed."""

import argparse
import os
import pathlib
import subprocess
import sys
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"


class Totals:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, report):
        """Adds a JUnit file's test cases; a runner that wrote none counts as one failure."""
        if not report.exists():
            self.failed += 1
            return
        for case in xml.parse(report).iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed += 1
            elif case.find("skipped") is not None or case.get("status") in ("disabled", "notrun"):
                self.skipped += 1
            else:
                self.passed += 1


def run(title, command, report, totals, **options):
    print(f"pushpull: {title}", flush=True)
    report.unlink(missing_ok=True)
    start = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, **options).returncode
    failed_before = totals.failed
    totals.add(report)
    if code != 0 and totals.failed == failed_before:
        totals.failed += 1  # it broke outside of any test
    print(f"pushpull: took {time.monotonic() - start:.0f} s, exit code {code}\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pytest", nargs="*", help="further arguments for pytest")
    arguments, rest = parser.parse_known_args()
    totals = Totals()
    report = BUILD / "ctest.xml"
    run("C++ tests",
        ["ctest", "--test-dir", BUILD, "-j", str(os.cpu_count()), "--output-on-failure",
         "--no-tests=error", "--output-junit", report],
        report, totals)
    report = BUILD / "pytest.xml"
    run("Python tests",
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *arguments.pytest, *rest],
        report, totals,
        env={**os.environ, "PATH": f"{ROOT / '.venv' / 'bin'}:{os.environ.get('PATH', '')}"})
    skipped = f", {totals.skipped} skipped" if totals.skipped else ""
    print(f"{totals.passed} passed, {totals.failed} failed{skipped}")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())
