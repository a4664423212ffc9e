"""How each library is started. A peer turns a `Job` into processes, or says why it cannot be had.

`modes`: tensor, fused, latency. A peer's programs leave <rank>.json files in the job's folder (see
peers/workload.h); one with files of another kind overrides `collect`.
"""
import contextlib
import dataclasses
import json
import os
import secrets
import socket
import sys

import labhosts

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(BENCH)
PEERS_DIR = os.environ.get("BENCH_PEERS_DIR") or os.path.join(ROOT, ".cache", "peers")
OWN_COMMAND = os.path.join(ROOT, ".venv", "bin", "pushpull")


@dataclasses.dataclass
class Process:
    argv: list
    env: dict = dataclasses.field(default_factory=dict)
    service: bool = False  # ended when the others are done


@dataclasses.dataclass
class Job:
    """One run of one case. `lab` is None on one host; `out` is a fresh folder."""
    group: object
    mode: str
    out: str
    lab: object = None

    @property
    def place(self):
        return self.group.place

    def arguments(self, variant=""):
        """The command line that every program under peers/ understands."""
        group = self.group
        what = ["--sizes", ",".join(map(str, group.sizes))] if self.mode == "latency" else \
            ["--model", group.model_path]
        return ["--mode", self.mode, *what, "--iters", str(group.iters), "--warmup",
                str(group.warmup), "--out", self.out, *(["--variant", variant] if variant else [])]

    def on_host(self, host, argv):
        """`argv` where it has to run: as it is without a lab."""
        return self.lab.command(host, argv) if self.lab else argv

    def on_head(self, argv):
        return self.on_host("head", argv)

    def host_of(self, rank):
        return rank // self.place.per_host

    def address_of(self, rank):
        return self.lab.hosts[self.host_of(rank)].address if self.lab else "127.0.0.1"


def program(name):
    return os.path.join(PEERS_DIR, "bin", f"peer_{name}")


def script(name):
    return os.path.join(BENCH, "peers", name)


def reason_for(peer, fallback):
    """Why set-up could not provide a peer, where it left a reason."""
    with contextlib.suppress(OSError):
        with open(os.path.join(PEERS_DIR, f"{peer}.reason"), encoding="utf-8") as note:
            return note.read().strip()
    return f"{fallback}; bench/setup_peers.sh {peer} installs it"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def per_rank(job, argv, **env):
    """A process for each rank, told by RANK and SIZE who it is."""
    return [Process(job.on_host(job.host_of(rank), argv),
                    {"RANK": str(rank), "SIZE": str(job.place.ranks), **env})
            for rank in range(job.place.ranks)]


def mpirun(job, argv, *options):
    where = job.lab.mpirun_arguments(job.place.per_host) if job.lab else []
    return [Process(job.on_head(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe",
                                 "--bind-to", "none", *where, *options,
                                 "-np", str(job.place.ranks), *argv]))]


def read_rank_files(job):
    """Series by name: bytes, per step the time of its slowest rank, CPU seconds of all ranks."""
    ranks = []
    for rank in range(job.place.ranks):
        with open(os.path.join(job.out, f"{rank}.json"), encoding="ascii") as report:
            ranks.append(json.load(report))
    gathered = {}
    for series in zip(*(report["series"] for report in ranks)):
        gathered[series[0]["name"]] = {
            "bytes": series[0]["bytes"],
            "us": [max(times) for times in zip(*(one["us"] for one in series))],
            "cpu_s": sum(one["cpu_s"] for one in series)}
    return gathered


class Peer:
    modes = ("tensor", "fused", "latency")
    in_lab = on_one_host = True
    level = "C++"
    reference = own = False

    def __init__(self, name, title):
        self.name, self.title = name, title

    def missing(self):
        """Why the peer cannot be had here, or None."""
        raise NotImplementedError

    def processes(self, job):
        raise NotImplementedError

    def collect(self, job):
        return read_rank_files(job)


class Memory(Peer):
    """memcpy and a += b over the same bytes: the scale for one host."""
    modes = ("tensor",)
    in_lab = False
    level = "reference"
    reference = True

    def __init__(self, name, title, variant):
        super().__init__(name, title)
        self.variant = variant

    def missing(self):
        return None if os.path.exists(program("memory")) else reason_for("programs", "not compiled")

    def processes(self, job):
        return [Process([program("memory"), *job.arguments(self.variant)])]

    def collect(self, job):
        with open(os.path.join(job.out, "0.json"), encoding="ascii") as report:
            series = json.load(report)["series"][0]
        return {job.mode: {"bytes": series["bytes"], "us": series["us"], "cpu_s": None}}


class Iperf3(Peer):
    """What a link gives to plain TCP, both ways at once, as the wire's time at that rate."""
    modes = ("tensor",)
    on_one_host = False
    level = "reference"
    reference = True
    seconds = 2

    def missing(self):
        return None if _which("iperf3") else "no iperf3: install the package iperf3"

    def processes(self, job):
        client = ("for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; iperf3 -c host1 --bidir -J -O 1 "
                  f"-t {self.seconds} > '{job.out}/iperf3.json' && exit; done; exit 1")
        return [Process(job.on_host(1, ["iperf3", "-s", "-1"])),
                Process(job.on_host(0, ["sh", "-c", client]))]

    def collect(self, job):
        with open(os.path.join(job.out, "iperf3.json"), encoding="utf-8") as report:
            end = json.load(report)["end"]
        slower = min(end[key]["bits_per_second"]
                     for key in ("sum_received", "sum_received_bidir_reverse"))
        payload = job.group.payload_bytes()
        return {job.mode: {"bytes": payload, "us": [job.place.wire_us(payload, slower)],
                           "cpu_s": None}}


class OpenMpi(Peer):
    def __init__(self, name, title, variant="allreduce", modes=Peer.modes):
        super().__init__(name, title)
        self.variant, self.modes = variant, modes

    def missing(self):
        if not os.path.exists(program("openmpi")) or not _which("mpirun.openmpi"):
            return reason_for("openmpi", "no Open MPI, or its program is not compiled")
        return None

    def processes(self, job):
        return mpirun(job, [program("openmpi"), *job.arguments(self.variant)])


class HydraMpi(Peer):
    """Intel MPI and MPICH, started by their mpiexec (hydra)."""

    def __init__(self, name, title, mpiexec, env):
        super().__init__(name, title)
        self.prefix = os.path.join(PEERS_DIR, name)
        self.mpiexec, self.env = mpiexec, env

    def missing(self):
        if not os.path.exists(program(self.name)):
            return reason_for(self.name, "not installed, or its program is not compiled")
        return None

    def processes(self, job):
        argv = [os.path.join(self.prefix, "bin", self.mpiexec)]
        if job.lab:
            # Hydra wants one word that takes what ssh takes.
            shell = os.path.join(job.out, "rsh")
            with open(shell, "w", encoding="utf-8") as out:
                out.write(f'#!/bin/sh\nexec {sys.executable} -E {labhosts.COMMAND} rsh "$@"\n')
            os.chmod(shell, 0o755)
            argv += ["-launcher", "ssh", "-launcher-exec", shell, "-iface", "br0",
                     "-hosts", ",".join(host.name for host in job.lab.hosts),
                     "-ppn", str(job.place.per_host)]
        argv += ["-n", str(job.place.ranks), program(self.name), *job.arguments()]
        return [Process(job.on_head(argv), self.env(self, job))]


def intel_environment(peer, job):
    return {"I_MPI_ROOT": peer.prefix,
            "PATH": f"{peer.prefix}/bin:{os.environ['PATH']}",
            "I_MPI_HYDRA_IFACE": "br0" if job.lab else "lo",
            "I_MPI_PIN": "0" if job.place.ranks > os.cpu_count() or job.lab else "1",
            **({"I_MPI_FABRICS": "shm:ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
               if job.lab else {"I_MPI_FABRICS": "shm"})}


def mpich_environment(_, job):
    return {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"} if job.lab else {}


class OneCcl(Peer):
    in_lab = False

    def missing(self):
        if not os.path.exists(program("oneccl")):
            return reason_for("oneccl", "not installed, or its program is not compiled")
        return None

    def processes(self, job):
        prefix = os.path.join(PEERS_DIR, "oneccl")
        env = {"I_MPI_ROOT": prefix, "CCL_ROOT": prefix,
               "PATH": f"{prefix}/bin:{os.environ['PATH']}",
               "LD_LIBRARY_PATH": f"{prefix}/lib", "I_MPI_FABRICS": "shm", "I_MPI_PIN": "0",
               "I_MPI_HYDRA_IFACE": "lo", "CCL_ATL_TRANSPORT": "mpi", "CCL_LOG_LEVEL": "error",
               "CCL_KVS": os.path.join(job.out, "kvs"),
               # Its own worker thread and spinning waits starve the ranks where cores are few.
               "CCL_WORKER_OFFLOAD": "0", "CCL_YIELD": "sched_yield"}
        return [Process([f"{prefix}/bin/mpiexec.hydra", "-n", str(job.place.ranks),
                         program("oneccl"), *job.arguments()], env)]


class Gloo(Peer):
    def missing(self):
        if not os.path.exists(program("gloo")):
            return reason_for("gloo", "no Gloo, or its program is not compiled")
        return None

    def processes(self, job):
        made = per_rank(job, [program("gloo"), *job.arguments()], GLOO_STORE=job.out)
        for rank, process in enumerate(made):
            process.env["GLOO_ADDRESS"] = job.address_of(rank)
        return made


class TorchGloo(Peer):
    level = "Python"
    python = "/usr/bin/python3"

    def missing(self):
        if not os.path.exists("/usr/lib/python3/dist-packages/torch"):
            return reason_for("torch", "no python3-torch")
        return None

    def processes(self, job):
        return per_rank(job, [self.python, script("torch_gloo.py"), *job.arguments()],
                        GLOO_STORE=job.out, GLOO_SOCKET_IFNAME="eth0" if job.lab else "lo")


def _which(name):
    return any(os.access(os.path.join(folder, name), os.X_OK)
               for folder in os.environ["PATH"].split(os.pathsep))


def _horovod_python():
    return os.path.join(PEERS_DIR, "horovod", "bin", "python")


def mxnet_python():
    candidates = [_horovod_python(), os.path.join(ROOT, ".venv", "bin", "python")]
    return next((path for path in candidates if os.path.exists(path)), None)


class Horovod(Peer):
    modes = ("tensor", "latency")
    level = "MXNet"

    def __init__(self, name, title, over):
        super().__init__(name, title)
        self.over = over

    def missing(self):
        return None if os.path.exists(_horovod_python()) else reason_for("horovod", "not installed")

    def processes(self, job):
        worker = [_horovod_python(), script("horovod_mxnet.py"), *job.arguments()]
        if self.over == "mpi":
            return mpirun(job, worker, "-x", "HOROVOD_CONTROLLER=mpi",
                          "-x", "HOROVOD_CPU_OPERATIONS=mpi")
        starter = [_horovod_python(), script("horovod_gloo_start.py"), str(job.place.ranks),
                   str(job.place.per_host), job.lab.name if job.lab else "-"]
        return [Process(job.on_head(starter + worker))]


class DistSync(Peer):
    """MXNet's parameter server; as many servers as ranks unless a number is given."""
    modes = ("tensor", "latency")
    level = "MXNet"

    def __init__(self, name, title, servers=None):
        super().__init__(name, title)
        self.servers = servers

    def missing(self):
        return None if mxnet_python() else "no Python with mxnet: run `make build`"

    def processes(self, job):
        servers = self.servers or job.place.ranks
        base = {"DMLC_PS_ROOT_URI": job.address_of(0), "DMLC_PS_ROOT_PORT": str(free_port()),
                "DMLC_NUM_WORKER": str(job.place.ranks), "DMLC_NUM_SERVER": str(servers)}
        argv = [mxnet_python(), script("mxnet_dist_sync.py"), *job.arguments()]
        made = []
        for role, count in (("scheduler", 1), ("server", servers), ("worker", job.place.ranks)):
            for number in range(count):
                rank = number % job.place.ranks
                made.append(Process(job.on_host(job.host_of(rank), argv),
                                    {**base, "DMLC_ROLE": role,
                                     "DMLC_NODE_HOST": job.address_of(rank)}))
        return made


class Pushpull(Peer):
    """Our own store, by its own `pushpull bench`."""
    own = True

    def __init__(self, backend, level="C++"):
        mxnet = level == "MXNet"
        super().__init__(f"pushpull-{backend}" + ("-mxnet" if mxnet else ""), f"pushpull {backend}")
        self.backend, self.level = backend, level
        if mxnet:
            self.modes = ("tensor", "latency")

    def missing(self):
        if not os.path.exists(OWN_COMMAND):
            return "no .venv/bin/pushpull: run `make build`"
        if self.backend == "gloo-redis" and not _which("redis-server"):
            return "no redis-server: install the package redis-server"
        return None

    def command(self, job):
        group = job.group
        if job.mode == "latency":
            what = ["--latency", "--sizes", ",".join(map(str, group.sizes))]
        else:
            named = group.model in ("resnet50", "vgg16", "bert-base")
            what = ["--model", group.model if named else group.model_path]
            what += ["--fused"] if job.mode == "fused" else []
        return [OWN_COMMAND, "bench", *what, "--backend", self.backend,
                "--iters", str(group.iters), "--warmup", str(group.warmup),
                "--json", os.path.join(job.out, "own.json"),
                *(["--level", "mxnet"] if self.level == "MXNet" else [])]

    def processes(self, job):
        made = []
        rendezvous = None
        if self.backend == "gloo-redis":
            host, port = ("10.77.0.254" if job.lab else "127.0.0.1"), free_port()
            server = ["redis-server", "--port", str(port), "--bind", host, "--protected-mode", "no",
                      "--save", ""]
            made.append(Process(job.on_head(server), service=True))
            rendezvous = f"redis://{host}:{port}/0"
        env = {"PUSHPULL_SECRET": secrets.token_hex(16)}
        if not job.lab:
            where = ["--rendezvous", rendezvous] if rendezvous else []
            made.append(Process([*self.command(job), "-n", str(job.place.ranks), *where], env))
        elif self.backend == "mpi":
            made += mpirun(job, self.command(job))
        else:
            env["PUSHPULL_RENDEZVOUS"] = rendezvous or f"tcp://{job.address_of(0)}:29500"
            for rank in range(job.place.ranks):
                made.append(Process(
                    job.on_host(job.host_of(rank), self.command(job)),
                    {**env, "PUSHPULL_RANK": str(rank), "PUSHPULL_SIZE": str(job.place.ranks),
                     "PUSHPULL_LOCAL_RANK": str(rank % job.place.per_host)}))
        return made

    def collect(self, job):
        with open(os.path.join(job.out, "own.json"), encoding="utf-8") as text:
            report = json.load(text)
        wrong = [result["name"] for result in report["results"] if not result["correct"]]
        if wrong:
            raise ValueError(f"wrong sums in {', '.join(wrong)}")
        return {(str(result["bytes"]) if job.mode == "latency" else job.mode): {
            "bytes": result["bytes"], "us": [1e6 * each for each in case["iterations_s"]],
            "cpu_s": case["cpu_s"] * len(case["iterations_s"])}
            for result, case in zip(report["results"], report["context"]["cases"])}


def catalogue():
    """Every peer, by name, in the order of the page."""
    both = ("tensor", "fused")
    known = [
        Memory("memory-copy", "memcpy, one thread", "copy"),
        Memory("memory-copy2", "memcpy, two threads", "copy2"),
        Memory("memory-sum", "a += b, one thread", "sum"),
        Iperf3("iperf3", "iperf3 --bidir"),
        *(Pushpull(backend) for backend in ("gloo", "gloo-redis", "mpi")),
        *(Pushpull(backend, "MXNet") for backend in ("gloo", "gloo-redis", "mpi")),
        OpenMpi("openmpi", "Open MPI"),
        OpenMpi("openmpi-nonblocking", "Open MPI, MPI_Iallreduce", "nonblocking", ("tensor",)),
        OpenMpi("openmpi-ring", "Open MPI, ring of MPI_Sendrecv", "ring", both),
        HydraMpi("impi", "Intel MPI", "mpiexec.hydra", intel_environment),
        HydraMpi("mpich", "MPICH", "mpiexec", mpich_environment),
        OneCcl("oneccl", "oneCCL"),
        Gloo("gloo", "Gloo"),
        TorchGloo("torch", "torch gloo"),
        Horovod("horovod-mpi", "Horovod, MPI", "mpi"),
        Horovod("horovod-gloo", "Horovod, Gloo", "gloo"),
        DistSync("dist_sync", "MXNet dist_sync"),
        *(DistSync(f"dist_sync-{n}", f"MXNet dist_sync, {n} server{'s' * (n > 1)}", n)
          for n in (1, 2, 4, 8)),
    ]
    return {peer.name: peer for peer in known}
