"""One run of one case: start its processes, wait, gather times, load by others and bytes sent."""
import contextlib
import ctypes
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

import labhosts
from harness.load import ForeignLoad
from harness.peers import Job


PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None)
TELLING = re.compile(r"error|expected|not found|cannot|denied|timed out|refused|wrong", re.I)


class CaseFailed(Exception):
    """Why a run gave no figures."""


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def adopt_orphans():
    """Lets this process inherit what its children leave behind, so that `run_once` can end it:
    ranks outlive a starter that was killed."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent():
    """In a child: SIGTERM should this process be killed, so that starters end their ranks."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _children():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                if int(stat.read().rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(pid))
    return found


def _end_orphans(spared):
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        orphans = [pid for pid in _children() if pid not in spared]
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _exit_code(process):
    """None while it runs. Does not reap it: its number must not name another process group before
    `_end` has ended this one."""
    state = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if state is None:
        return None
    return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status


def _end(process):
    """Ends a process and its group. Asks first: a starter that is killed at once leaves its ranks
    running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + 3
    while _exit_code(process) is None and time.monotonic() < deadline:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_words(log):
    """What a failed run said: the lines that sound like a reason, else its last ones."""
    with open(log, encoding="utf-8", errors="replace") as text:
        lines = [line.strip() for line in text if line.strip()]
    telling = [line for line in lines if TELLING.search(line)]
    return " | ".join(telling[:2] or lines[-3:])[:300] or "no output"


def _run_processes(processes, log, environment, timeout):
    """Runs all to their end; the first failure, or the timeout, ends the rest."""
    started, deadline = [], time.monotonic() + timeout
    with open(log, "wb") as out:
        try:
            for process in processes:
                started.append((process, subprocess.Popen(
                    process.argv, env={**environment, **process.env}, stdin=subprocess.DEVNULL,
                    stdout=out, stderr=out, start_new_session=True,
                    preexec_fn=_die_with_parent)))
            waiting = [running for process, running in started if not process.service]
            while waiting:
                for running in list(waiting):
                    code = _exit_code(running)
                    if code is None:
                        continue
                    waiting.remove(running)
                    if code != 0:
                        time.sleep(0.5)  # the others' last words
                        raise CaseFailed(f"exit code {code}: {_last_words(log)}")
                if time.monotonic() > deadline:
                    raise CaseFailed(f"no result within {timeout:g} s: {_last_words(log)}")
                time.sleep(0.02)
        except OSError as error:
            raise CaseFailed(f"cannot start {error.filename}: {error.strerror}") from error
        finally:
            for _, running in started:
                _end(running)


def _summary(series, steps, foreign, sent):
    times = series["us"]
    cpu = series["cpu_s"]
    return {"median_us": statistics.median(times), "p95_us": quantile(times, 0.95),
            "best_us": min(times), "samples": len(times),
            "times_us": [round(t, 1) for t in times] if len(times) <= 50 else [],
            "foreign_cpus": round(foreign, 3),
            "cpu_s_per_step": None if cpu is None else cpu / len(times),
            "sent_sets": None if sent is None else sent / steps / series["bytes"]}


def run_once(peer, group, mode, keep_logs=None):
    """Runs a case once; {series name: {"bytes": ..., "round": ...}} or CaseFailed."""
    out = tempfile.mkdtemp(prefix="bench.")
    os.chmod(out, 0o755)
    place = group.place
    log = os.path.join(out, "log")
    before = _children()
    # A job of ours around this run must not tell the peers who they are.
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("DMLC_", "OMPI_", "PMI", "PUSHPULL_", "HOROVOD_"))}
    environment["OMP_NUM_THREADS"] = "1"
    try:
        with contextlib.ExitStack() as stack:
            lab = None
            if place.in_lab:
                lab = stack.enter_context(labhosts.Lab(place.hosts, place.rate))
            job = Job(group, mode, out, lab)
            load = ForeignLoad()
            _run_processes(peer.processes(job), log, environment, group.timeout)
            foreign = load.cpus()
            sent = max(lab.sent_bytes()) if lab and not peer.own and not peer.reference else None
        steps = 1 + group.warmup + group.iters
        return {name: {"bytes": series["bytes"], "round": _summary(
                    series, steps, foreign, sent if mode != "latency" else None)}
                for name, series in peer.collect(job).items()}
    except labhosts.LabError as error:
        raise CaseFailed(str(error)) from error
    except (OSError, ValueError, KeyError) as error:
        raise CaseFailed(f"no figures ({error}): {_last_words(log)}") from error
    finally:
        _end_orphans(spared=before)
        if keep_logs and os.path.exists(log):
            os.makedirs(keep_logs, exist_ok=True)
            shutil.copy(log, os.path.join(keep_logs, f"{group.name}.{peer.name}.{mode}.log"))
        shutil.rmtree(out, ignore_errors=True)
