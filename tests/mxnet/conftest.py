"""Starts groups of real worker processes.

The workers run with this interpreter; they need the package pushpull installed, or PYTHONPATH and
PUSHPULL_LIBRARY_DIR pointing to a build.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parent / "scripts"
ROOT = SCRIPTS.parent.parent.parent
_OURS = re.compile(r"^(PUSHPULL_(?!LIBRARY_DIR)|MXNET_|DMLC_|OMPI_|PMIX?_|SLURM_|RANK$|WORLD_SIZE$)")


def pytest_configure(config):
    config.addinivalue_line("markers", "checks(*scripts, groups): runs the scripts' check_* functions in "
                                       "groups of (backend, number of workers[, environment])")


def free_port():
    """Below the ports that the kernel gives to outgoing connections: some seconds pass until a worker
    that imports mxnet first listens on it."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


@dataclasses.dataclass
class Outcome:
    """How a worker ended. A negative code is a signal, None a worker that had to be ended by the test."""
    code: int
    out: str
    err: str
    seconds: float  # after the group was started

    @property
    def text(self):
        return f"exit code {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err[-6000:]}"


class Worker:
    """A process with a process group of its own. It stays a zombie until finish(), so that its number
    means nobody else, and what it started is still there until then."""

    def __init__(self, command, **options):
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True,
                                         preexec_fn=_die_with_parent, **options)
        self.pid = self._process.pid

    def code(self):
        """How it ended: the exit code, or a signal as a negative number; None while it runs."""
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def wait(self, timeout):
        end = time.monotonic() + timeout
        while self.code() is None:
            assert time.monotonic() < end, f"process {self.pid} has not ended after {timeout} s"
            time.sleep(0.02)

    def kill(self, signal_number=signal.SIGKILL):
        os.kill(self.pid, signal_number)

    def finish(self):
        """Ends it with all that it started."""
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()


def _die_with_parent():
    """So that nothing goes on when the tests themselves are killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Group:
    """Worker processes that find each other; their output goes to files."""

    def __init__(self, folder, size, command, backend="gloo", rendezvous=None, env=None):
        self.size = size
        self.folder = folder
        self._start = time.monotonic()
        base = {name: value for name, value in os.environ.items() if not _OURS.match(name)}
        # Unbuffered, print() would write a line and its end apart, and mpirun mix the ranks' pieces.
        base.pop("PYTHONUNBUFFERED", None)
        base.update(OMP_NUM_THREADS="1", MXNET_KVSTORE_BACKEND=backend, **(env or {}))
        if backend == "mpi":
            environments = [base]
            command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n",
                       str(size), *command]
        else:
            rendezvous = rendezvous or f"tcp://127.0.0.1:{free_port()}"
            environments = [{"PUSHPULL_RANK": str(rank), "PUSHPULL_SIZE": str(size),
                             "PUSHPULL_RENDEZVOUS": rendezvous, **base} for rank in range(size)]
        self.processes = [self._spawn(command, environment, i)
                          for i, environment in enumerate(environments)]

    def _spawn(self, command, environment, number):
        with open(self._path(number, "out"), "w") as out, open(self._path(number, "err"), "w") as err:
            return Worker(command, env=environment, stdout=out, stderr=err, cwd=self.folder)

    def _path(self, number, stream):
        return self.folder / f"{number}.{stream}"

    def output(self, number, stream="out"):
        return self._path(number, stream).read_text(errors="replace")

    def wait_for(self, number, text, timeout=60, count=1):
        """Until a worker has printed the text, `count` times."""
        end = time.monotonic() + timeout
        while self.output(number).count(text) < count:
            assert self.processes[number].code() is None, self.output(number, "err")
            assert time.monotonic() < end, f"worker {number} did not print {text!r}"
            time.sleep(0.02)

    def wait(self, timeout=120):
        """Until all have ended; who has not at the timeout is killed, and its code is None."""
        end = time.monotonic() + timeout
        outcomes = [None] * len(self.processes)
        while True:
            for i, process in enumerate(self.processes):
                if outcomes[i] is None and process.code() is not None:
                    outcomes[i] = self._outcome(i, process.code())
            if None not in outcomes or time.monotonic() >= end:
                break
            time.sleep(0.02)
        self.end()
        return [outcome or self._outcome(i, None) for i, outcome in enumerate(outcomes)]

    def _outcome(self, i, code):
        return Outcome(code, self.output(i), self.output(i, "err"), time.monotonic() - self._start)

    def succeed(self, timeout=120):
        outcomes = self.wait(timeout)
        for rank, outcome in enumerate(outcomes):
            assert outcome.code == 0, f"worker {rank}: {outcome.text}"
        return outcomes

    def end(self):
        for process in self.processes:
            process.finish()


class Starter:
    """Makes groups, and ends what is left of them."""

    def __init__(self, make_folder, redis):
        self._make_folder = make_folder
        self._redis = redis
        self._groups = []

    def __call__(self, size, *command, backend="gloo", **options):
        """`command`: a script of scripts/ or a path, and its arguments; or python's own options first."""
        command = [str(part) for part in command]
        if not command[0].startswith("-"):
            command[0] = str(SCRIPTS / command[0])  # an absolute path stays what it is
        if backend == "gloo-redis":
            options.setdefault("rendezvous", self._redis())
        group = Group(self._make_folder(), size, [sys.executable, *command], backend=backend, **options)
        self._groups.append(group)
        return group

    def end(self):
        for group in self._groups:
            group.end()


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory):
    """A function that gives the URL of a redis-server, started when first asked."""
    servers = []

    def url():
        if not servers:
            port = free_port()
            servers.append((port, subprocess.Popen(
                ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                 "--dir", str(tmp_path_factory.mktemp("redis"))],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)))
        return f"redis://127.0.0.1:{servers[0][0]}/0"

    yield url
    for _, server in servers:
        server.terminate()
        server.wait()


@pytest.fixture(scope="session")
def session_starter(tmp_path_factory, redis_url):
    starter = Starter(lambda: tmp_path_factory.mktemp("group"), redis_url)
    yield starter
    starter.end()


@pytest.fixture
def start(tmp_path, redis_url):
    count = iter(range(1000))

    def folder():
        path = tmp_path / f"group{next(count)}"
        path.mkdir()
        return path

    starter = Starter(folder, redis_url)
    yield starter
    starter.end()


# -- checks: many in one start of the processes, as importing mxnet takes seconds -----------------------
def pytest_generate_tests(metafunc):
    marker = metafunc.definition.get_closest_marker("checks")
    if marker is None:
        return
    scripts = marker.args
    groups = marker.kwargs["groups"]
    names = _names(scripts)
    cases, ids = [], []
    for backend, size, *environment in groups:
        variables = tuple(sorted(environment[0].items())) if environment else ()
        for name in names:
            cases.append((scripts, backend, size, variables, name))
            ids.append("-".join([backend, str(size), *(value for _, value in variables), name]))
    metafunc.parametrize("check", cases, ids=ids, indirect=True)


@pytest.fixture(scope="session")
def check_results(session_starter):
    """Runs scripts in a group, once; gives the error of each check on each rank that has one."""
    known = {}

    def results(*group):
        if group not in known:
            known[group] = _run_checks(session_starter, *group)
        return known[group]

    return results


def _run_checks(starter, scripts, backend, size, variables):
    group = starter(size, "harness.py", "results-{rank}", *scripts, backend=backend,
                    env={"PUSHPULL_STALL_TIMEOUT": "60s", **dict(variables)})
    outcomes = group.wait(timeout=240)
    ends = "\n".join(f"worker {i}: {outcome.text}" for i, outcome in enumerate(outcomes))
    errors = {}
    done = []
    for rank in range(size):
        path = group.folder / f"results-{rank}"
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            result = json.loads(line)
            if result["error"]:
                errors.setdefault(result["name"], []).append(f"rank {rank}: {result['error']}")
        done.append({json.loads(line)["name"] for line in lines})
    well = all(outcome.code == 0 for outcome in outcomes)
    return errors, set.intersection(*done), well, ends


@pytest.fixture
def check(request, check_results):
    """Passes when the check did on every rank."""
    scripts, backend, size, variables, name = request.param
    if backend == "mpi" and shutil.which("mpirun") is None:
        pytest.fail("mpirun is not installed")

    def passed():
        errors, done, well, ends = check_results(scripts, backend, size, variables)
        assert not errors.get(name), "\n".join(errors[name])
        assert name in done, f"did not run on every rank: {ends}"
        # A group that ends badly after its last check is that check's business.
        assert well or errors or name != _names(scripts)[-1], ends

    return passed


def _names(scripts):
    """script.check of all checks, in the order in which they run."""
    return [f"{script.removesuffix('.py')}.{name}" for script in scripts
            for name in re.findall(r"^def check_(\w+)", (SCRIPTS / script).read_text(), re.MULTILINE)]
