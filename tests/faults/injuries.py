"""One function per kind of trial: it starts a group, injures it, and returns (complaints, seconds)."""

import os
import signal
import time

import checks
import isolation
import strangers
from isolation import free_port
from job import Job

HEARTBEAT = 2.0
_STALL = 2.0
# Nothing takes that long unless it hangs.
_AGES = 60


class Ward:
    """What trials share: where to work, what ranks meet at, how patient to be with the clock."""

    def __init__(self, worker, mxnet_worker, redis, lab, patience, long):
        self.worker, self.mxnet_worker = worker, mxnet_worker
        self.redis, self.lab = redis, lab
        self.patience = patience  # limits are this many times as long
        self.long = long  # whether what takes a minute may take it

    def rendezvous(self, trial):
        on_lab = trial.kind == "link"
        if trial.backend == "gloo-redis":
            return self.redis.url("10.77.0.254" if on_lab else "127.0.0.1")
        return f"tcp://{'10.77.0.1' if on_lab else '127.0.0.1'}:{free_port()}"

    def start(self, folder, trial, arguments, env=None, **options):
        draw = trial.draw()
        command = [self.worker] if trial.worker == "cpp" else self.mxnet_worker
        words = {"seed": draw.seed, "bytes": draw.bytes, "pause_us": draw.pause_us, **arguments}
        if trial.worker == "mxnet":
            words["bytes"] = min(words["bytes"], 1 << 20)
        return Job(folder, trial, [*command, *(f"{k}={v}" for k, v in words.items())],
                   self.rendezvous(trial), lab=self.lab,
                   env={"PUSHPULL_REDIS_PASSWORD": self.redis.password, **(env or {})}, **options)


def _survivors(job, *victims):
    return [rank for rank in range(job.trial.size) if rank not in victims]


def _created(job):
    if job.wait_for("created", timeout=_AGES):
        return []
    return [f"the group did not form: {job.read()}"]


def _in_training(job):
    """What is wrong where the group did not form; else waits until the trial's moment."""
    said = _created(job)
    if not said:
        time.sleep(job.trial.draw().moment)
    return said


def _ended(job, ranks, timeout=_AGES):
    return [f"process {i} still runs after {timeout} s" for i in job.wait_until_ended(ranks, timeout)]


def _sudden(ward, job, number):
    """A rank is gone from one moment to the next."""
    draw = job.trial.draw()
    if bad := _in_training(job):
        return bad, 0
    since = job.hit(draw.victim, number)
    survivors = _survivors(job, draw.victim)
    said = _ended(job, survivors)
    more, took = checks.named(job, draw.victim, survivors, since, checks.KILL_LIMIT * ward.patience)
    return said + more + checks.restartable(job, survivors), took


def kill(ward, folder, trial):
    job = ward.start(folder, trial, {})
    return job, lambda: _sudden(ward, job, signal.SIGKILL)


def children(ward, folder, trial):
    count = trial.draw().children
    job = ward.start(folder, trial, {"children": count, "early_children": count % 2})

    return job, lambda: _sudden(ward, job, signal.SIGKILL)


def exit_early(ward, folder, trial):
    job = ward.start(folder, trial, {})
    return job, lambda: _sudden(ward, job, signal.SIGUSR1)


def leave(ward, folder, trial):
    job = ward.start(folder, trial, {})
    victim = trial.draw().victim

    def run():
        if bad := _in_training(job):
            return bad, 0
        since = job.hit(victim, signal.SIGTERM)
        survivors = _survivors(job, victim)
        said = _ended(job, range(trial.size))
        more, took = checks.named(job, victim, survivors, since, checks.KILL_LIMIT * ward.patience,
                                  group=False)
        said += more + checks.restartable(job, survivors)
        if trial.backend != "mpi" and job.code(victim) != 0:
            said.append(f"the rank that left ended with {job.code(victim)}")
        return said, took
    return job, run


def stop(ward, folder, trial):
    job = ward.start(folder, trial, {}, env={"PUSHPULL_HEARTBEAT_TIMEOUT": f"{HEARTBEAT}s"})
    victim = trial.draw().victim

    def run():
        if bad := _in_training(job):
            return bad, 0
        since = job.hit(victim, signal.SIGSTOP)
        survivors = _survivors(job, victim)
        said = [] if trial.backend == "mpi" else _ended(job, survivors)
        job.wait_for("error", survivors)
        limit = HEARTBEAT + checks.SILENCE_LIMIT * ward.patience
        more, took = checks.named(job, victim, survivors, since, limit)
        # It goes on, and finds that it is out.
        job.hit(victim, signal.SIGCONT)
        said += more + _ended(job, range(trial.size))
        if trial.backend != "mpi":
            said += [] if job.of(victim, "error") else ["the stopped rank went on as if nothing had been"]
            said += checks.restartable(job, survivors)
        return said, took
    return job, run


def link(ward, folder, trial):
    job = ward.start(folder, trial, {}, env={"PUSHPULL_HEARTBEAT_TIMEOUT": f"{HEARTBEAT}s"})
    victim = trial.draw().victim

    def run():
        if bad := _in_training(job):
            return bad, 0
        since = time.monotonic()
        job.lab.set_link(victim, "down")
        try:
            survivors = _survivors(job, victim)
            said = _ended(job, range(trial.size))
            limit = HEARTBEAT + checks.SILENCE_LIMIT * ward.patience
            more, took = checks.named(job, victim, survivors, since, limit)
            if not job.of(victim, "error"):
                more.append(f"rank {victim}, cut off, reported nothing")
            return said + more + checks.restartable(job, survivors), took
        finally:
            job.lab.set_link(victim, "up")
    return job, run


def early(ward, folder, trial):
    join = 4.0
    draw = trial.draw()
    job = ward.start(folder, trial, {"delay_ms": draw.seed % 30}, grace=2,
                     env={"PUSHPULL_RENDEZVOUS_TIMEOUT": f"{join}s"})

    def run():
        time.sleep(draw.early_moment)
        job.wait_for("start", [draw.victim])
        since = job.hit(draw.victim, signal.SIGKILL)
        if since is None:
            return ["the rank was gone before it was killed"], 0
        survivors = _survivors(job, draw.victim)
        said = _ended(job, survivors)
        if trial.backend == "mpi":
            # Ranks wait for each other in MPI_Init, which only mpirun ends.
            return said + checks.restartable(job, survivors), time.monotonic() - since
        more, took = checks.missing(job, draw.victim, survivors, since,
                                    checks.KILL_LIMIT * ward.patience,
                                    join + checks.KILL_LIMIT * ward.patience)
        return said + more, took
    return job, run


def all_at_once(ward, folder, trial):
    """Only what is left behind counts."""
    job = ward.start(folder, trial, {})
    draw = trial.draw()

    def run():
        time.sleep(draw.early_moment * 3)
        for rank in range(trial.size):
            job.hit(rank, signal.SIGKILL)
        for process in job.running():  # mpirun too
            process.kill()
        return _ended(job, range(trial.size)), 0
    return job, run


def missing(ward, folder, trial):
    """One rank goes on with other keys: all are warned, then the call fails on all."""
    victim = trial.draw().victim
    job = ward.start(folder, trial, {"missing_rank": victim, "bytes": 4096},
                     env={"PUSHPULL_STALL_WARNING": "0.5s", "PUSHPULL_STALL_TIMEOUT": f"{_STALL}s"})

    def run():
        said = _ended(job, range(trial.size))
        survivors = _survivors(job, victim)
        for rank in survivors:
            errors = job.of(rank, "error")
            text = errors[0]["message"] if errors else ""
            if not errors or errors[0]["code"] != "Timeout" or errors[0]["culprit"] != victim or \
                    "'layer3'" not in text or f"rank {victim}" not in text:
                said.append(f"rank {rank} does not name rank {victim} and key 'layer3': {errors}")
        warned = [line for line in job.text().splitlines()
                  if "warning" in line and "'layer3'" in line and f"rank {victim}" in line]
        for rank in range(trial.size):
            if not any(f"pushpull rank {rank}:" in line for line in warned):
                said.append(f"rank {rank} was not warned: {warned}")
        return said, _STALL
    return job, run


def compute(ward, folder, trial):
    """No call for six limits on end, and nobody minds."""
    heartbeat, busy = (10, 60) if ward.long else (1, 6)
    job = ward.start(folder, trial, {"compute_rank": trial.draw().victim, "compute_ms": busy * 1000,
                                     "steps": 8},
                     env={"PUSHPULL_HEARTBEAT_TIMEOUT": f"{heartbeat}s"})

    def run():
        said = _ended(job, range(trial.size), timeout=_AGES + busy)
        return said + checks.well(job, range(trial.size)), busy
    return job, run


def hostile(ward, folder, trial):
    """Strangers at the doors while one rank is late, and after all have connected."""
    count = 10000 if ward.long else 600
    late = trial.size - 1
    env = {"PUSHPULL_RENDEZVOUS_TIMEOUT": "120s"}
    job = ward.start(folder, trial, {"late_rank": late, "steps": 200, "bytes": 1 << 18,
                                     "pause_us": 5000}, env=env)

    def run():
        job.wait_for("start")
        return _besieged(ward, job, count, late)
    return job, run


def _besieged(ward, job, count, late):
    patient = [rank for rank in range(job.trial.size) if rank != late]
    pids = [job.pid(rank) for rank in patient]
    siege = strangers.Siege(pids)
    while not siege.doors() and job.running():
        time.sleep(0.01)
    made, cpu = siege.lay(count)
    job.go()
    said = _created(job)
    again, _ = siege.lay(count // 10)
    said += _ended(job, range(job.trial.size)) + checks.well(job, range(job.trial.size))
    if made < count:
        said.append(f"only {made} of {count} strangers got through to a listener")
    each = cpu / max(1, made)
    if ward.long and each > 100e-6 * ward.patience:
        said.append(f"a stranger costs {each * 1e6:.0f} us")
    return said, each


def redis_restarts(ward, folder, trial):
    """Ten restarts while all but one have come, then that one comes; then Redis is gone for good."""
    job = ward.start(folder, trial, {"late_rank": trial.draw().victim, "steps": 100, "bytes": 4096,
                                     "pause_us": 10000},
                     env={"PUSHPULL_RENDEZVOUS_TIMEOUT": "60s"})

    def run():
        job.wait_for("start")
        for _ in range(10):
            ward.redis.restart()
            time.sleep(0.1)
        job.go()
        said = _created(job)
        ward.redis.end()
        said += _ended(job, range(trial.size)) + checks.well(job, range(trial.size))
        ward.redis.restart()
        return said, 0
    return job, run


KINDS = {"kill": kill, "children": children, "exit": exit_early, "leave": leave, "stop": stop,
         "link": link, "early": early, "all": all_at_once, "missing": missing, "compute": compute,
         "hostile": hostile, "redis": redis_restarts}


def _descriptors(pid):
    """What the descriptors of a process lead to; nothing once it has ended."""
    try:
        return [os.readlink(entry) for entry in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return []


def dismiss_children(known, ranks, backend):
    """Ends the orphans of trials with children, and looks at what they held of the group's.

    The survivors among `ranks` (pids) may still be leaving, as mpirun does not wait for them when it is
    ended itself. MPI's own sockets are MPI's business.
    """
    end = time.monotonic() + 5
    while any(map(_descriptors, ranks)) and time.monotonic() < end:
        time.sleep(0.02)
    ours = ("memfd:",) if backend == "mpi" else ("memfd:", "socket:")
    said = []
    for pid, name in isolation.descendants(known).items():
        if pid not in known:
            said += [f"the child {pid} ({name}) holds {thing}" for thing in _descriptors(pid)
                     if any(kind in thing for kind in ours)]
    dismiss(known)
    return said


def dismiss(known, isolated=False):
    """Ends what a trial left behind."""
    if isolated:
        for entry in os.scandir("/dev/shm"):
            os.unlink(entry.path)
    for pid in isolation.descendants(known):
        if pid not in known:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def leftovers(isolated, redis, known, timeout=5.0):
    """What a trial left behind, once it had the time to go."""
    end = time.monotonic() + timeout
    while True:
        found = [f"process {pid} ({name})" for pid, name in isolation.descendants(known).items()
                 if pid not in known]
        if isolated:
            found += isolation.sockets(but=redis.port)
            # Open MPI's own, which mpirun removes unless it is killed itself.
            found += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm")
                      if not name.startswith("vader_segment")]
        found += [f"Redis key {key}" for key in redis.immortal_keys()]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.02)
