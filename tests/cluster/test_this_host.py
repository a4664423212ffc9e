"""What needs no second host, but time: many killed launchers, and every configuration with a real training."""

import os
import random
import signal
import subprocess
import time

import pytest

from launching import ROOT, Launcher, wait_until

pytestmark = pytest.mark.cluster

KILLS = int(os.environ.get("PUSHPULL_TEST_KILLS", 100))
# A grandchild that leaves session, process group and parent.
DAEMON = 'setsid sh -c "sleep 300 & wait" >/dev/null 2>&1 & exec sleep 300'
CONFIGS = sorted(path for path in (ROOT / "configs").glob("*.yaml") if path.stem != "kubernetes")


@pytest.fixture
def here():
    instance = Launcher()
    yield instance
    instance.close()


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return [int(child) for child in children.read().split()]


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("engine", ["local", "mpirun"])
def test_killed_launchers_leave_no_worker(here, engine):
    """kill -9 at a random moment, of either of the two processes that the launcher is."""
    longest = 0.0
    for number in range(KILLS):
        rng = random.Random(number)
        job = here.start("run", "-n", 3, "--engine", engine, "--", "sh", "-c", DAEMON,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, 1.0))
        inner = children_of(job.pid)
        os.kill(rng.choice([job.pid, *inner[:1]]), signal.SIGKILL)
        killed = time.monotonic()
        wait_until(lambda: not here.alive(), 5)
        longest = max(longest, time.monotonic() - killed)
        job.wait(timeout=10)
    print(f"{KILLS} launchers killed; the last process of theirs ended within {longest:.2f} s")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_every_configuration_trains(here, config):
    done = here.run("run", "-c", config, "--", "python", ROOT / "examples" / "gluon_digits.py",
                    cwd=ROOT, timeout=280)
    assert done.returncode == 0, done.err
    assert float(done.out.split("test accuracy: ")[1].split()[0]) >= 0.97
    assert "parameters are identical" in done.out or "1 worker" in done.out
