"""Test hosts on one machine: network namespaces on one bridge, with shaped links.

    with Lab(4, "1gbit") as lab:
        server = lab.popen(1, ["iperf3", "-s", "-1"])
        lab.run(0, ["iperf3", "-c", lab.hosts[1].address], check=True)

`bench/lab` does the same from a shell. A lab is

    head   the bridge br0, 10.77.0.254: where starters (mpirun, rendezvous servers) run
    host0  its link eth0, 10.77.0.1 and fd77::1
    host1  10.77.0.2 and fd77::2, and so on

Each host has its own network, host name, IPC, /sys and /dev/shm, and an /etc/hosts with the names
above; files and process ids are the machine's. Both ends of a link send through a token bucket of
the given rate. Nothing of a lab shows outside it, so labs side by side use the same addresses, and
there is no interface, namespace name or file to be left behind. When the lab's owner dies, even by
SIGKILL, every process in the lab is ended.

Root is needed; only the standard library is used.
"""
import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys

import lab_guardian
from lab_guardian import LabError

COMMAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lab")
ENVIRONMENT_NAME = "LAB_NAME"  # set in every process of a lab; names the lab where no name is given
DEFAULT_NAME = "lab"
MAX_HOSTS = 200
_numbers = itertools.count()


@dataclasses.dataclass(frozen=True)
class Host:
    name: str
    address: str
    address6: str
    interface: str
    pid: int  # of the process that keeps the host: `nsenter -t PID -n -u -m -i` enters it


def why_not():
    """Why no lab can be had here, or None."""
    if os.geteuid() != 0:
        return "a lab makes network namespaces, which needs root: run this as root or by sudo"
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux"),
                             ("unshare", "util-linux")):
        if shutil.which(program) is None:
            return f"a lab needs the program {program}: install the package {package}"
    tried = subprocess.run(["unshare", "--net", "--uts", "--ipc", "--mount", "true"],
                           capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"a lab makes network namespaces, which is not allowed here: {tried.stderr.strip()}"
    return None


def require_root():
    reason = why_not()
    if reason:
        raise LabError(reason)


def default_name():
    return os.environ.get(ENVIRONMENT_NAME) or DEFAULT_NAME


def up(count, rate, *, name=None, delay=None, clock_step=0, owner=None):
    """Makes a lab that lasts until `down`, or until process `owner` dies. Returns its name.

    `clock_step`: host i's monotonic and boot-time clocks are (i + 1) * clock_step seconds ahead.
    Forks, so a program with threads makes its lab by `Lab` instead.
    """
    require_root()
    if not 1 <= count <= MAX_HOSTS:
        raise LabError(f"a lab has 1 to {MAX_HOSTS} hosts, not {count}")
    lab_guardian.parse_rate(rate)
    name = name or default_name()
    lab_guardian.start({"name": name, "count": count, "rate": rate, "delay": delay,
                        "clock_step": clock_step}, owner)
    return name


def _ask(name, what):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(30)
        try:
            client.connect(lab_guardian.socket_name(name))
        except ConnectionRefusedError:
            raise LabError(f"no lab named '{name}' is up; make one by: lab up 2 1gbit "
                           f"--name {name}") from None
        client.sendall((json.dumps({"ask": what}) + "\n").encode())
        answer = client.makefile().readline()
    if not answer:
        raise LabError(f"the lab '{name}' went down, or belongs to another user")
    return json.loads(answer)


def info(name=None):
    """What the lab consists of: the keys are those that `lab info --json` prints."""
    return _ask(name or default_name(), "info")


def down(name=None):
    """Ends every process in the lab; returns when the lab is gone."""
    _ask(name or default_name(), "down")


def names():
    """Labs that are up and visible from this network."""
    with open("/proc/net/unix", encoding="ascii", errors="replace") as table:
        found = {line.split("@pushpull-lab/", 1)[1].strip()
                 for line in table if "@pushpull-lab/" in line}
    return sorted(found)


def find_host(description, wanted):
    """A member of `info()`'s answer, by index, name or address."""
    for index, host in enumerate(description["hosts"]):
        if str(wanted) in (str(index), host["name"], host["address"], host["address6"]):
            return host
    head = description["head"]
    if str(wanted) in (head["name"], head["address"], head["address6"]):
        return head
    raise LabError(f"the lab '{description['name']}' has no host '{wanted}': it has head and host0 "
                   f"to host{len(description['hosts']) - 1}")


def enter(description, wanted):
    """Moves this process into a host, for good."""
    lab_guardian.enter(find_host(description, wanted)["pid"], bool(description["clock_step"]))
    os.environ[ENVIRONMENT_NAME] = description["name"]


def set_link(description, wanted, state):
    """`down` unplugs a host's link at the switch, `up` plugs it in again, a rate shapes it anew."""
    host, head = find_host(description, wanted), description["head"]
    if host is head:
        raise LabError("the head has no link of its own; name one of the hosts")
    index = description["hosts"].index(host)
    if state in ("up", "down"):
        lab_guardian.in_network(head["pid"], "ip", "link", "set", f"port{index}", state)
    else:
        lab_guardian.shape_link(head["pid"], host["pid"], index, state, description["delay"])


class Lab:
    """A lab as long as the `with` block, or this process, lives."""

    def __init__(self, count, rate, *, name=None, delay=None, clock_step=0):
        self.name = name or f"{os.getpid()}.{next(_numbers)}"
        self._arguments = ["up", str(count), rate, "--name", self.name, "--owner",
                           str(os.getpid())]
        if delay:
            self._arguments += ["--delay", delay]
        if clock_step:
            self._arguments += [f"--time-namespace={clock_step}"]
        self.hosts = []
        self.head = None

    def __enter__(self):
        # By a process of its own, since a program that forks must not have threads.
        done = subprocess.run([sys.executable, "-E", COMMAND, *self._arguments],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise LabError(done.stderr.strip().removeprefix("lab: "))
        description = self.info()
        self.hosts = [Host(**host) for host in description["hosts"]]
        self.head = Host(**description["head"])
        return self

    def __exit__(self, *_):
        with contextlib.suppress(LabError):  # ended already
            down(self.name)

    def info(self):
        return info(self.name)

    def command(self, host, argv):
        """`argv` as it is run in a host (index, name or address): the process stays the same one,
        so its pid, signals and exit code are the command's own."""
        return [sys.executable, "-E", COMMAND, "exec", "--name", self.name, str(host), *argv]

    def popen(self, host, argv, **options):
        return subprocess.Popen(self.command(host, argv), **options)

    def run(self, host, argv, **options):
        return subprocess.run(self.command(host, argv), **options)

    def set_link(self, host, state):
        set_link(self.info(), host, state)

    def sent_bytes(self):
        """What each host has sent over its link so far."""
        counters = []
        for index in range(len(self.hosts)):
            text = self.run("head", ["cat", f"/sys/class/net/port{index}/statistics/rx_bytes"],
                            capture_output=True, text=True, check=True).stdout
            counters.append(int(text))
        return counters

    def mpirun_arguments(self, slots=1):
        """What Open MPI's mpirun needs in the head to reach `slots` ranks on each host."""
        return ["--host", ",".join(f"{host.name}:{slots}" for host in self.hosts),
                "--map-by", "slot",
                "--mca", "plm", "rsh",
                "--mca", "plm_rsh_agent", f"{sys.executable} -E {COMMAND} rsh",
                "--mca", "oob_tcp_if_include", "10.77.0.0/24",
                "--mca", "btl_tcp_if_include", "10.77.0.0/24"]
