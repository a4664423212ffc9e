"""The processes of one trial."""

import json
import os
import pathlib
import re
import subprocess
import time

from isolation import die_with_parent

ROOT = pathlib.Path(__file__).resolve().parents[2]
_OURS = re.compile(r"^(PUSHPULL_(?!LIBRARY_DIR)|MXNET_|DMLC_|OMPI_|PMIX?_|SLURM_|RANK$|WORLD_SIZE$)")
SECRET = "of the trial"  # also where ranks are on hosts of their own


class Job:
    """Starts the ranks of a trial; what they report is in `events`.

    lab: hosts of their own for the ranks (see bench/labhosts.py), or None for this one.
    """

    def __init__(self, folder, trial, command, rendezvous, lab=None, env=None, grace=1):
        self.trial = trial
        self.folder = folder
        self.lab = lab
        (folder / "events").mkdir()
        (folder / "tmp").mkdir()
        base = {name: value for name, value in os.environ.items() if not _OURS.match(name)}
        base.update(FAULTS_EVENTS=str(folder / "events"), TMPDIR=str(folder / "tmp"),
                    OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1", PUSHPULL_LOCAL=trial.local,
                    MXNET_KVSTORE_BACKEND=trial.backend, PUSHPULL_JOB=f"faults-{os.getpid()}",
                    PUSHPULL_LOG="info", **(env or {}))
        self.started = time.monotonic()
        self._offsets, self.events = {}, []
        if trial.backend == "mpi":
            # When a rank ends, mpirun ends the others within twice this time, and takes all of it.
            starter = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                       "--mca", "odls_base_sigkill_timeout", str(grace), "-n", str(trial.size)]
            self.processes = [self._spawn(0, [*starter, *command], base)]
        else:
            self.processes = [
                self._spawn(rank, command, {**base, "PUSHPULL_RANK": str(rank),
                                            "PUSHPULL_SIZE": str(trial.size),
                                            "PUSHPULL_RENDEZVOUS": rendezvous})
                for rank in range(trial.size)]

    def _spawn(self, number, command, environment):
        if self.lab is not None:
            environment = {**environment, "PUSHPULL_SECRET": SECRET}
            command = self.lab.command(number, command)
        with open(self.folder / f"{number}.out", "wb") as out:
            return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=subprocess.STDOUT, start_new_session=True,
                                    preexec_fn=die_with_parent, cwd=self.folder / "tmp")

    def read(self):
        """All events so far, in the order of each process."""
        for path in (self.folder / "events").glob("*.jsonl"):
            with open(path, "rb") as file:
                file.seek(self._offsets.get(path, 0))
                text = file.read()
            whole = text[:text.rfind(b"\n") + 1]
            self._offsets[path] = self._offsets.get(path, 0) + len(whole)
            self.events += [json.loads(line) for line in whole.splitlines()]
        return self.events

    def of(self, rank, *names):
        return [e for e in self.events if e["rank"] == rank and e["event"] in names]

    def wait_for(self, name, ranks=None, timeout=60):
        """Until each of the ranks (default: all) has had an event; False where the job ends or the time."""
        wanted = set(range(self.trial.size) if ranks is None else ranks)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            running = self.running()
            self.read()
            if wanted <= {e["rank"] for e in self.events if e["event"] == name}:
                return True
            if not running:
                return False
            time.sleep(0.002)
        return False

    def go(self):
        """Lets the late rank join."""
        (self.folder / "events" / "go").touch()

    def pid(self, rank):
        if self.trial.backend != "mpi" and self.lab is None:
            return self.processes[rank].pid
        pids = [e["pid"] for e in self.read() if e["rank"] == rank]
        return pids[0] if pids else None

    def hit(self, rank, number):
        """Sends a signal to a rank; the moment just before, or None where it does not run yet."""
        pid = self.pid(rank)
        if pid is None:
            return None
        moment = time.monotonic()
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return None
        return moment

    def running(self):
        return [p for p in self.processes if p.poll() is None]

    def wait_until_ended(self, ranks, timeout):
        """The ranks that have not ended by themselves at the timeout."""
        end = time.monotonic() + timeout
        if self.trial.backend == "mpi":
            wanted = self.processes
        else:
            wanted = [self.processes[rank] for rank in ranks]
        while any(p.poll() is None for p in wanted) and time.monotonic() < end:
            time.sleep(0.005)
        self.read()
        return [i for i, p in enumerate(self.processes) if p in wanted and p.poll() is None]

    def code(self, rank):
        return self.processes[0 if self.trial.backend == "mpi" else rank].poll()

    def text(self):
        return "".join(path.read_text(errors="replace") for path in self.folder.glob("*.out"))

    def output(self):
        """The end of what each process printed."""
        parts = []
        for path in sorted(self.folder.glob("*.out")):
            parts.append(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}")
        return "\n".join(parts)

    def end(self):
        """Ends what is left of what was started here; orphans are the caller's."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
