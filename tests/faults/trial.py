"""What is done to which group: everything that is random comes from the trial's own name."""

import dataclasses
import random

BACKENDS = ("gloo", "gloo-redis", "mpi")
LOCALS = ("shm", "backend")
SIZES = (2, 4, 8)

# What happens to one rank, and what everybody else has to say then.
KINDS = {
    "kill": "kill -9 after create",
    "children": "kill -9 with live children that inherited everything",
    "exit": "ends with code 0 without a word",
    "leave": "leaves early in good order",
    "stop": "kill -STOP",
    "link": "its network link is unplugged",
    "early": "kill -9 before create has returned",
    "all": "kill -9 of all ranks at once",
    "missing": "never calls for one key",
    "compute": "computes for longer than the limits",
    "hostile": "strangers connect while ranks connect and train",
    "redis": "Redis restarts while ranks connect",
}


@dataclasses.dataclass(frozen=True)
class Trial:
    kind: str
    worker: str  # cpp, mxnet
    backend: str
    size: int
    local: str
    seed: str

    def __str__(self):
        return f"{self.kind}/{self.worker}/{self.backend}/{self.size}/{self.local}/{self.seed}"

    @staticmethod
    def parse(text):
        kind, worker, backend, size, local, seed = text.split("/")
        if kind not in KINDS or worker not in ("cpp", "mxnet") or backend not in BACKENDS:
            raise ValueError(f"'{text}' names no trial")
        return Trial(kind, worker, backend, int(size), local, seed)

    def draw(self):
        return Draw(self)


class Draw:
    """A trial's random choices."""

    def __init__(self, trial):
        chance = random.Random(str(trial))
        self.victim = chance.randrange(trial.size)
        # Seconds after the last rank was created; before: after the processes were started.
        self.moment = chance.choice((0.0, chance.uniform(0, 0.05), chance.uniform(0, 0.5)))
        self.early_moment = chance.uniform(0, 0.15 if trial.worker == "cpp" else 4.0)
        self.bytes = chance.choice((1 << 12, 1 << 18, 1 << 20, 8 << 20))
        self.pause_us = chance.choice((0, 0, 1000, 20000))
        self.children = chance.choice((1, 2, 4))
        self.seed = chance.randrange(1 << 30)


def places(kind, worker):
    """(backend, size, local) that a kind of trial is made over."""
    if kind == "link":  # hosts of their own share no memory
        return [(backend, size, "backend") for backend in ("gloo", "gloo-redis") for size in SIZES[:2]]
    if kind == "redis":
        return [("gloo-redis", 8, local) for local in LOCALS]
    sizes = SIZES if worker == "cpp" else (2, 2, 4)
    # Over MPI nobody listens before all have come, nor after.
    backends = BACKENDS[:2] if kind == "hostile" else BACKENDS
    return [(backend, size, local) for backend in backends for size in sizes for local in LOCALS]


def spread(kind, worker, count, seed):
    """`count` trials evenly over all places, in random order."""
    all_places = places(kind, worker)
    random.Random(f"{seed}.{kind}.{worker}").shuffle(all_places)
    return [Trial(kind, worker, *all_places[i % len(all_places)], f"{seed}.{i}")
            for i in range(count)]


def marathon(count, seed):
    """`count` kills, nine tenths of them by the C++ worker, and some of everything else."""
    by_mxnet = count // 10
    some, few = max(1, count // 20), max(1, count // 100)
    trials = spread("kill", "cpp", count - by_mxnet, seed)
    trials += spread("kill", "mxnet", by_mxnet - by_mxnet // 2, seed)
    trials += spread("children", "mxnet", by_mxnet // 2, seed)
    for kind in ("children", "exit", "leave", "stop", "link", "early", "all"):
        trials += spread(kind, "cpp", some, seed)
    for kind in ("missing", "compute", "hostile", "redis"):
        trials += spread(kind, "cpp", few, seed)
    random.Random(f"{seed}.order").shuffle(trials)  # so that a part of it is a sample of all
    return trials


def short(seed):
    """Some of everything, in the time that a test may take."""
    trials = spread("kill", "cpp", 18, seed)
    for kind, count in (("children", 3), ("exit", 3), ("leave", 2), ("stop", 2), ("link", 1),
                        ("early", 3), ("all", 3), ("missing", 1), ("compute", 1), ("hostile", 1),
                        ("redis", 1)):
        trials += spread(kind, "cpp", count, seed)
    return trials
