"""What is measured: groups of cases that belong on one plot, and the suites made of them."""
import dataclasses
import os
import re

MODELS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "models")
LATENCY_SIZES = (4, 1024, 65536, 1 << 20)
ELEMENT_BYTES = 4  # every case sums float32


@dataclasses.dataclass(frozen=True)
class Place:
    """Where the ranks run: on this machine, or spread over a lab's hosts."""
    hosts: int
    per_host: int
    rate: str = "none"

    @property
    def ranks(self):
        return max(1, self.hosts) * self.per_host

    @property
    def in_lab(self):
        return self.hosts > 0

    @property
    def bits_per_second(self):
        number, unit = re.fullmatch(r"([\d.]+)([kmg])bit", self.rate).groups()
        return float(number) * {"k": 1e3, "m": 1e6, "g": 1e9}[unit]

    def wire_us(self, payload_bytes, bits_per_second=None):
        """The least time of a host-aware sum: 2 (H - 1) / H of the bytes cross each link."""
        share = 2 * (self.hosts - 1) / self.hosts
        return share * payload_bytes * 8 / (bits_per_second or self.bits_per_second) * 1e6


@dataclasses.dataclass(frozen=True)
class Group:
    """Cases on one plot. Iterations, rounds and peers can be overridden from the command line."""
    name: str
    title: str
    place: Place
    peers: tuple
    model: str = "resnet50"
    modes: tuple = ("tensor", "fused")
    sizes: tuple = ()
    iters: int = 20
    warmup: int = 5
    rounds: int = 3
    timeout: float = 240

    @property
    def model_path(self):
        return os.path.join(MODELS, f"{self.model}.txt")

    def payload_bytes(self):
        with open(self.model_path, encoding="ascii") as lines:
            return ELEMENT_BYTES * sum(int(line.split()[0]) for line in lines)


MPI_AND_GLOO = ("openmpi", "impi", "mpich", "gloo")
FRAMEWORKS = ("horovod-mpi", "horovod-gloo", "dist_sync")
OWN = ("pushpull-gloo", "pushpull-mpi")
OWN_MXNET = ("pushpull-gloo-mxnet", "pushpull-mpi-mxnet")
ONE_HOST = (*OWN, *OWN_MXNET, *MPI_AND_GLOO, "oneccl", "torch", *FRAMEWORKS)
HOSTS = (*OWN, "pushpull-gloo-redis", *OWN_MXNET, *MPI_AND_GLOO, "openmpi-ring", "torch",
         *FRAMEWORKS)


def _one_host(ranks, **changes):
    group = Group(f"host-{ranks}", f"One host, {ranks} ranks",
                  Place(0, ranks), ("memory-copy", "memory-copy2", "memory-sum", *ONE_HOST))
    return dataclasses.replace(group, **changes)


def _latency(ranks, **changes):
    group = Group(f"latency-{ranks}", f"One host, {ranks} ranks: one call at a time",
                  Place(0, ranks), ONE_HOST, modes=("latency",), sizes=LATENCY_SIZES, iters=300,
                  warmup=50)
    return dataclasses.replace(group, **changes)


def _hosts(hosts, rate, per_host=1, **changes):
    shape = f"{hosts}x{per_host}" if per_host > 1 else str(hosts)
    ranks = f" of {per_host} ranks" if per_host > 1 else ""
    group = Group(f"{rate}-{shape}",
                  f"{hosts} hosts{ranks} at {rate.replace('gbit', ' Gbit/s')}",
                  Place(hosts, per_host, rate), ("iperf3", *HOSTS), iters=5, warmup=1)
    return dataclasses.replace(group, **changes)


def _bulk():
    servers = tuple(f"dist_sync-{count}" for count in (1, 2, 4, 8))
    return Group("bulk-8", "8 hosts at 1 Gbit/s, 400 MB", Place(8, 1, "1gbit"),
                 ("iperf3", *OWN, *OWN_MXNET, "openmpi", "openmpi-ring", "gloo", "horovod-mpi",
                  "horovod-gloo", *servers),
                 model="bulk-400mb", modes=("tensor", "fused"), iters=5, warmup=0, rounds=1,
                 timeout=600)


def full():
    return [_one_host(2), _one_host(4), _latency(2), _latency(4),
            *(_hosts(n, "1gbit") for n in (2, 4, 8)),
            *(_hosts(n, "10gbit", iters=10, warmup=2) for n in (2, 4, 8)),
            _hosts(2, "1gbit", per_host=2), _bulk()]


def quick():
    some = ("pushpull-gloo", "pushpull-gloo-mxnet", "openmpi", "impi", "gloo", "horovod-mpi",
            "dist_sync")
    return [_one_host(2, peers=("memory-copy", *some), rounds=2, iters=10, warmup=3),
            _latency(2, peers=some, rounds=1, iters=200, warmup=20),
            _hosts(2, "1gbit", peers=("iperf3", *some), rounds=1, iters=2)]


def tiny():
    """Every kind of case with next to no work: proof that they still run."""
    some = ("pushpull-gloo", "pushpull-mpi", "pushpull-gloo-mxnet", *MPI_AND_GLOO, "dist_sync")
    least = {"rounds": 1, "iters": 2, "warmup": 0, "model": "tiny", "timeout": 60}
    return [_one_host(2, peers=("memory-copy", *some), **least),
            _latency(2, peers=some[:-1], sizes=(4, 1024), **least),
            _hosts(2, "1gbit", peers=("iperf3", "pushpull-gloo", "openmpi", "openmpi-ring", "gloo"),
                   **least)]


SUITES = {"full": full, "quick": quick, "tiny": tiny}
