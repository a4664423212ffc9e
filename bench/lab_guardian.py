"""What makes and ends a lab's hosts; `labhosts.py` is the part to use.

A lab consists of processes alone, so that nothing can be left behind:

    holders    one per host and one for the head, asleep, keeping the namespaces alive
    guardian   their parent; it answers on an abstract socket (in the caller's network and in each
               of the lab's) and watches the lab's owner: when that dies, even by SIGKILL, it ends
               every process that is in one of the namespaces, then the holders
    twin       does the same should the guardian itself be killed

Every process here is single-threaded; only the standard library is used.
"""
import contextlib
import ctypes
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import time

CLONE_NEWTIME, CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET = (
    0x00000080, 0x00020000, 0x04000000, 0x08000000, 0x40000000)
KINDS = {"net": CLONE_NEWNET, "mnt": CLONE_NEWNS, "uts": CLONE_NEWUTS, "ipc": CLONE_NEWIPC}
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
PR_SET_PDEATHSIG = 1
HEAD = None  # the head's index, where hosts count from 0

_libc = ctypes.CDLL(None, use_errno=True)


class LabError(Exception):
    """One sentence for the user."""


# -- the plan: pure functions ---------------------------------------------------------------------


def parse_rate(rate):
    """Bits per second of a rate as tc writes it, None for `none`."""
    if rate == "none":
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg])bit", rate)
    if not match or float(match[1]) == 0:
        raise LabError(f"'{rate}' is no link rate; write for example 1gbit, 100mbit, or none")
    return int(float(match[1]) * {"k": 1e3, "m": 1e6, "g": 1e9}[match[2]])


def shaping(device, rate, delay=None):
    """tc's arguments, a list per command, that shape what `device` sends."""
    commands, parent = [], ["root"]
    if delay:
        commands.append(["qdisc", "replace", "dev", device, "root", "handle", "1:", "netem",
                         "delay", delay, "limit", "100000"])
        parent = ["parent", "1:1", "handle", "10:"]
    bits = parse_rate(rate)
    if bits is not None:
        # A millisecond's worth refills between two timer ticks; two large segments must fit.
        burst = max(bits // 8 // 1000, 128 * 1024)
        commands.append(["qdisc", "replace", "dev", device, *parent, "tbf", "rate", rate,
                         "burst", f"{burst}b", "latency", "20ms"])
    return commands


def address(index):
    return f"10.77.0.{254 if index is HEAD else index + 1}"


def address6(index):
    return f"fd77::{254 if index is HEAD else index + 1:x}"


def host_name(index):
    return "head" if index is HEAD else f"host{index}"


def interface(index):
    return "br0" if index is HEAD else "eth0"


def socket_name(name):
    return f"\0pushpull-lab/{name}"


def _hosts_file(count):
    rows = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    rows += [f"{address(i)} {host_name(i)}" for i in [HEAD, *range(count)]]
    return "\n".join(rows) + "\n"


# -- system calls ---------------------------------------------------------------------------------


def _call(function, *arguments):
    if function(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{function.__name__}: {os.strerror(code)}")


def enter(pid, clocks=False):
    """Moves this process into the namespaces of a holder; the working directory stays, by name."""
    folder = os.getcwd()
    try:
        holder = os.pidfd_open(pid)
        flags = CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC
        _call(_libc.setns, holder, flags | (CLONE_NEWTIME if clocks else 0))
    except OSError as error:
        raise LabError(f"cannot enter the host held by process {pid}: {error.strerror}") from error
    os.close(holder)
    try:
        os.chdir(folder)
    except OSError:
        os.chdir("/")


def _close_all(*kept):
    """What a fork inherits and must not hold open: others wait for the last copy to be closed."""
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > 2 and int(entry) not in kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(int(entry))


def _expect_ok(reader, failure):
    """Waits for a forked process to report `ok`, or to end."""
    with os.fdopen(reader, "rb", buffering=0) as verdict:
        said = verdict.read(4096).decode()
    if said != "ok":
        raise LabError(f"{failure}: {said or 'the process that keeps it ended'}")


def _mount(source, target, kind, flags, data=None):
    _call(_libc.mount, os.fsencode(source), os.fsencode(target), kind and kind.encode(),
          ctypes.c_ulong(flags), data and data.encode())


def in_network(pid, *argv, text=None):
    """Runs a program in the network of process `pid`."""
    argv = ["nsenter", f"--net=/proc/{pid}/ns/net", *argv]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines() or [f"exit {done.returncode}"]
        raise LabError(f"'{' '.join(argv[2:])}' failed: {reason[0]}")


# -- a holder -------------------------------------------------------------------------------------


def _shift_clocks(seconds):
    _call(_libc.unshare, CLONE_NEWTIME)
    with open("/proc/self/timens_offsets", "w", encoding="ascii") as offsets:
        offsets.write(f"monotonic {seconds} 0\nboottime {seconds} 0\n")
    with open("/proc/self/ns/time_for_children", "rb") as namespace:
        _call(_libc.setns, namespace.fileno(), CLONE_NEWTIME)


def _furnish(name, hosts_file):
    """Own host name, /sys, /dev/shm and /etc/hosts for the namespaces just made."""
    socket.sethostname(name)
    _mount("none", "/", None, MS_REC | MS_SLAVE)
    cgroups = os.open("/sys/fs/cgroup", os.O_PATH) if os.path.isdir("/sys/fs/cgroup") else None
    _mount("sysfs", "/sys", "sysfs", 0)
    if cgroups is not None:
        _mount(f"/proc/self/fd/{cgroups}", "/sys/fs/cgroup", None, MS_BIND | MS_REC)
        os.close(cgroups)
    _mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777")
    if os.path.exists("/etc/hosts"):
        with open("/dev/shm/hosts", "w", encoding="ascii") as out:
            out.write(hosts_file)
        os.chmod("/dev/shm/hosts", 0o644)
        _mount("/dev/shm/hosts", "/etc/hosts", None, MS_BIND)
        os.unlink("/dev/shm/hosts")


def _fork_holder(index, hosts_file, clock_shift):
    """Forks the process that keeps one host; returns its pid once the host is furnished."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        _expect_ok(reader, f"cannot make {host_name(index)}")
        return pid
    try:
        _call(_libc.prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
        if clock_shift:
            _shift_clocks(clock_shift)
        _call(_libc.unshare, CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC)
        _furnish(host_name(index), hosts_file)
        os.write(writer, b"ok")
    except BaseException as error:  # a forked copy of the caller must not run on
        os.write(writer, str(error).encode())
        os._exit(1)
    _close_all()
    while True:
        signal.pause()


# -- the network ----------------------------------------------------------------------------------


def _wire(holders, rate, delay):
    head, hosts = holders[0], holders[1:]
    batch = ["link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
             f"addr add {address(HEAD)}/24 dev br0",
             f"addr add {address6(HEAD)}/64 dev br0 nodad",
             "link set lo up", "link set br0 up"]
    for index, pid in enumerate(hosts):
        batch += [f"link add port{index} type veth peer name eth0 netns {pid}",
                  f"link set port{index} master br0 up"]
    in_network(head, "ip", "-batch", "-", text="\n".join(batch) + "\n")
    for index, pid in enumerate(hosts):
        batch = [f"addr add {address(index)}/24 dev eth0",
                 f"addr add {address6(index)}/64 dev eth0 nodad",
                 "link set lo up", "link set eth0 up"]
        in_network(pid, "ip", "-batch", "-", text="\n".join(batch) + "\n")
        shape_link(head, pid, index, rate, delay)


def shape_link(head, pid, index, rate, delay=None):
    """Shapes both ends of a host's link: what the host sends, and what the switch sends to it."""
    for holder, device, wait in ((pid, "eth0", delay), (head, f"port{index}", None)):
        for arguments in shaping(device, rate, wait):
            try:
                in_network(holder, "tc", *arguments)
            except LabError as error:
                if "netem" not in arguments:
                    raise
                raise LabError(f"no delay of '{delay}' is to be had from the kernel's netem queue "
                               f"(CONFIG_NET_SCH_NETEM): {error}") from error


# -- ending ---------------------------------------------------------------------------------------


def inodes_of(pid):
    """The numbers of a process's namespaces. One is given anew as soon as its namespace is gone."""
    return {os.stat(f"/proc/{pid}/ns/{kind}").st_ino for kind in KINDS}


def hold_namespaces(pids):
    """Descriptors that keep the namespaces of these processes, and so their numbers."""
    return [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for pid in pids for kind in KINDS]


def inhabitants(inodes, spared=()):
    """Pids of the processes that are in one of these namespaces."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) not in spared:
            with contextlib.suppress(OSError):  # ended meanwhile, or a zombie
                if inodes_of(entry) & inodes:
                    found.append(int(entry))
    return found


def _end_inhabitants(inodes, spared):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        found = inhabitants(inodes, spared)
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _readable(*files, timeout=None):
    poll = select.poll()
    for file in files:
        poll.register(file, select.POLLIN)
    return [fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)]


# -- the guardian ---------------------------------------------------------------------------------


class _Guardian:
    """Makes the lab in its constructor; `serve` returns when the lab has ended."""

    def __init__(self, plan, owner):
        self.plan, self.owner = plan, owner  # owner: a pidfd or None
        self.holders, self.listeners = [], []
        self._listen()  # the name first: of two labs that want it, one is refused at once
        hosts_file = _hosts_file(plan["count"])
        for index in [HEAD, *range(plan["count"])]:
            shift = 0 if index is HEAD else plan["clock_step"] * (index + 1)
            self.holders.append(_fork_holder(index, hosts_file, shift))
        for pid in self.holders:
            self._listen(pid)
        _wire(self.holders, plan["rate"], plan["delay"])
        self.inodes = set().union(*map(inodes_of, self.holders)) - inodes_of(os.getpid())
        self.twin, self.twin_fd = self._fork_twin()

    def _listen(self, pid=None):
        """Listens for clients in the network of process `pid`, or in our own."""
        with open("/proc/self/ns/net", "rb") as home:
            try:
                if pid is not None:
                    with open(f"/proc/{pid}/ns/net", "rb") as network:
                        _call(_libc.setns, network.fileno(), CLONE_NEWNET)
                listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                listener.bind(socket_name(self.plan["name"]))
                listener.listen(64)
                self.listeners.append(listener)
            except OSError as error:
                name = self.plan["name"]
                raise LabError(f"a lab named '{name}' is up already; choose another --name or end "
                               f"it by: lab down --name {name}") from error
            finally:
                if pid is not None:
                    _call(_libc.setns, home.fileno(), CLONE_NEWNET)

    def _fork_twin(self):
        guardian = os.pidfd_open(os.getpid())
        pid = os.fork()
        if pid:
            os.close(guardian)
            return pid, os.pidfd_open(pid)
        try:
            os.setsid()
            _close_all(guardian)
            # The holders die with the guardian: their numbers must not name another lab meanwhile.
            hold_namespaces(self.holders)
            _readable(guardian)
            _end_inhabitants(self.inodes, {os.getpid(), *self.holders})
        finally:
            os._exit(0)

    def serve(self):
        watched = [self.twin_fd] + ([] if self.owner is None else [self.owner])
        clients = {listener.fileno(): listener for listener in self.listeners}
        while True:
            ready = _readable(*watched, *clients)
            if any(fd in watched for fd in ready):
                self._end()
                return
            for fd in ready:
                with contextlib.suppress(OSError, ValueError):
                    if self._answer(clients[fd]):
                        return

    def _answer(self, listener):
        """Serves one client; True if the lab has ended."""
        client, _ = listener.accept()
        with client:
            client.settimeout(2)
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            if struct.unpack("3i", credentials)[1] not in (0, os.geteuid()):
                return False
            request = json.loads(client.makefile().readline(10_000))
            ending = request.get("ask") == "down"
            if ending:
                self._end()
            client.sendall((json.dumps({} if ending else self._description()) + "\n").encode())
            return ending

    def _description(self):
        members = [{"name": host_name(i), "address": address(i), "address6": address6(i),
                    "interface": interface(i), "pid": pid}
                   for i, pid in zip([HEAD, *range(self.plan["count"])], self.holders)]
        return {"name": self.plan["name"], "rate": self.plan["rate"], "delay": self.plan["delay"],
                "clock_step": self.plan["clock_step"], "subnet": "10.77.0.0/24",
                "subnet6": "fd77::/64", "guardian": os.getpid(), "twin": self.twin,
                "head": members[0], "hosts": members[1:]}

    def _end(self):
        _end_inhabitants(self.inodes, {os.getpid(), self.twin, *self.holders})
        for pid in [self.twin, *self.holders]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in [self.twin, *self.holders]:
            os.waitpid(pid, 0)
        for listener in self.listeners:
            listener.close()


def _detach():
    """No terminal, no open files, no signal handling of whoever asked for the lab."""
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def start(plan, owner=None):
    """Forks a guardian; returns when the lab is up. `owner` is the pid whose death ends the lab."""
    try:
        owner_fd = None if owner is None else os.pidfd_open(owner)
    except OSError as error:
        raise LabError(f"the owner, process {owner}, does not exist") from error
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        os.waitpid(child, 0)
        _expect_ok(reader, "cannot make the lab")
        return
    try:
        if os.fork():
            os._exit(0)
        _close_all(writer, owner_fd)
        _detach()
        try:
            guardian = _Guardian(plan, owner_fd)
        except (LabError, OSError) as error:
            os.write(writer, str(error).encode())
            os._exit(1)  # the holders follow by their death signal
        os.write(writer, b"ok")
        os.close(writer)
        guardian.serve()
    finally:
        os._exit(0)
