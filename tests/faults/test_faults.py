"""A short run of the fault runner; `make faults` is the long one."""

import pathlib
import subprocess
import sys

import pytest

RUNNER = pathlib.Path(__file__).resolve().parent / "run.py"


@pytest.mark.timeout(900)
def test_every_survivor_names_the_culprit():
    # The limits of `make faults` are measurements; here they only bound a hang.
    done = subprocess.run([sys.executable, str(RUNNER), "--short", "--seed", "1", "--patience", "10",
                           "--quiet"], capture_output=True, text=True, timeout=850, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
