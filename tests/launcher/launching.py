"""What the launcher's tests share: the command, and looking at processes."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pushpull_command():
    beside = pathlib.Path(sys.executable).parent / "pushpull"
    return os.environ.get("PUSHPULL_COMMAND", str(beside))


def pids_with(mark):
    """Processes whose environment or command line holds a text, zombies left out."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            text = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if state != "Z" and mark.encode() in text:
            found.append(int(entry.name))
    return found


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"did not happen within {seconds} s"
        time.sleep(0.02)
    return value


class Launcher:
    """Runs `pushpull`; every process of it is marked, so that what is left behind is found."""

    def __init__(self):
        self.mark = f"pushpull-test-{uuid.uuid4().hex}"
        self.started = []

    def environment(self, extra=None):
        clean = {k: v for k, v in os.environ.items()
                 if not k.startswith(("PUSHPULL_", "DMLC_", "OMPI_", "PMIX_", "SLURM_"))
                 and k != "MXNET_KVSTORE_BACKEND"}
        return {**clean, "MARK": self.mark, **(extra or {})}

    def command(self, arguments):
        return [pushpull_command(), *arguments]

    def start(self, *arguments, env=None, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
              stderr=subprocess.PIPE, **options):
        process = subprocess.Popen(
            self.command([str(argument) for argument in arguments]), env=self.environment(env), stdin=stdin,
            stdout=stdout, stderr=stderr, **options)
        self.started.append(process)
        return process

    def run(self, *arguments, input=None, timeout=60, **options):
        """-> finished process with .returncode, .stdout and .stderr as text."""
        stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
        process = self.start(*arguments, stdin=stdin, **options)
        out, err = process.communicate(input, timeout=timeout)
        process.out = (out or b"").decode(errors="replace")
        process.err = (err or b"").decode(errors="replace")
        return process

    def alive(self):
        return pids_with(self.mark)

    def assert_nothing_left(self, seconds=5):
        wait_until(lambda: not self.alive(), seconds)

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        for pid in self.alive():
            os.kill(pid, signal.SIGKILL)


def lines_of(text, rank):
    """A rank's lines without their tag."""
    tag = f"[{rank}] "
    return [line[len(tag):] for line in text.split("\n") if line.startswith(tag)]
