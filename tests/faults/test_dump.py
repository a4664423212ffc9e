"""A hung job explains itself: `pushpull dump` and SIGUSR2."""

import os
import re
import signal
import subprocess
import sys
import time
import uuid

import pytest

from job import ROOT
from isolation import free_port
from launching import pushpull_command

WORKER = ROOT / "build" / "release" / "bin" / "faults_worker"


class Hung:
    """Three ranks that wait for rank 1, which computes; each has a live child."""

    def __init__(self, folder, **environment):
        self.job = f"hung-{uuid.uuid4().hex}"
        port = free_port()
        self.processes = []
        for rank in range(3):
            env = {**os.environ, "PUSHPULL_JOB": self.job, "PUSHPULL_SIZE": "3", **environment,
                   "PUSHPULL_RANK": str(rank), "FAULTS_EVENTS": str(folder),
                   "PUSHPULL_RENDEZVOUS": f"tcp://127.0.0.1:{port}"}
            with open(folder / f"{rank}.err", "wb") as err:
                self.processes.append(subprocess.Popen(
                    [WORKER, "compute_rank=1", "compute_ms=120000", "bytes=4096", "children=1"],
                    env=env, stderr=err, start_new_session=True))
        self._errors = [folder / f"{rank}.err" for rank in range(3)]
        wait_until(lambda: all('"step":2' in p.read_text() for p in folder.glob("*.jsonl")) and
                   len(list(folder.glob("*.jsonl"))) == 3)
        time.sleep(0.3)  # the third step's calls

    def said(self, rank):
        return self._errors[rank].read_text()

    def end(self):
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"did not happen within {seconds} s"
        time.sleep(0.02)


@pytest.fixture
def hung(tmp_path):
    groups = []

    def start(**environment):
        groups.append(Hung(tmp_path, **environment))
        return groups[-1]

    yield start
    for group in groups:
        group.end()


def dump(*words):
    return subprocess.run([pushpull_command(), "dump", *words], capture_output=True, text=True,
                          timeout=60, check=False)


def test_every_rank_says_what_it_waits_for_and_who_is_missing(hung):
    group = hung()
    done = dump(group.job)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = done.stdout.split("--- ")[1:]
    assert [part.split(",")[0] for part in parts] == [f"rank {rank} of 3" for rank in range(3)]
    for rank, part in enumerate(parts):
        waiting = "pushpull of key 'layer0', call 4: announced, waiting for other ranks" in part
        assert waiting == (rank != 1), part
        assert re.search(r"pushpull call 4 of key 'layer0' has waited .* for rank 1 \(host", part), part
        assert re.search(r"rank 1 .*: connected, finished batch \d+, 0 calls open, heard", part), part


def test_a_signal_does_the_same_and_children_do_not_mind_it(hung):
    group = hung()
    for process in group.processes:
        os.killpg(process.pid, signal.SIGUSR2)  # the child, too
    for rank in range(3):
        wait_until(lambda rank=rank: "for rank 1 (host" in group.said(rank))
        assert group.said(rank).count("coordinator of run") == 1
    assert all(process.poll() is None for process in group.processes)


def test_who_does_not_answer_is_said(hung):
    group = hung()
    os.kill(group.processes[2].pid, signal.SIGSTOP)
    done = dump(group.job)
    assert done.returncode == 1
    assert "no answer for 4 s: the process is stopped" in done.stdout
    assert done.stdout.count("no answer") == 1


def test_switched_off_it_is_not_found(hung):
    group = hung(PUSHPULL_DUMP_SIGNAL="false")
    done = dump(group.job)
    assert done.returncode == 2 and f"no process of job '{group.job}' here" in done.stderr


def test_a_job_that_is_not_there(tmp_path):
    done = dump("no-such-job")
    assert done.returncode == 2 and "no process of job 'no-such-job' here; " in done.stderr
    assert done.stdout == ""


def test_a_handler_of_the_script_stays(tmp_path):
    """The store finds the signal taken, and leaves it."""
    code = (
        "import ctypes, os, signal, time\n"
        "signal.signal(signal.SIGUSR2, lambda *_: print('own', flush=True))\n"
        f"library = ctypes.CDLL({str(ROOT / 'build/release/lib/libpushpull.so')!r})\n"
        "store = ctypes.c_void_p()\n"
        "assert library.pushpull_create(b'', None, ctypes.byref(store)) == 0\n"
        "os.kill(os.getpid(), signal.SIGUSR2)\n"
        "time.sleep(0.1)\n"
        "library.pushpull_close(store)\n"
        "library.pushpull_free(store)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60,
                          cwd=tmp_path, check=False, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    assert done.stdout == "own\n" and "coordinator" not in done.stderr
