"""A network and a /dev/shm of the runner's own, so that what a trial leaves behind is seen exactly."""

import ctypes
import os
import pathlib
import random
import socket
import subprocess

_CLONE_NEWNS, _CLONE_NEWNET = 0x00020000, 0x40000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None, use_errno=True)
_TCP_LISTEN = "0A"


def adopt_orphans():
    """Whatever a trial leaves running becomes this process's child."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent():
    """For Popen's preexec_fn: nothing goes on when the runner itself is killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def enter():
    """Moves this process there, which needs root; says whether it did."""
    if os.geteuid() != 0 or _libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET) != 0:
        return False
    _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    shm = _libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=1g")
    lo = subprocess.run(["ip", "link", "set", "lo", "up"], check=False).returncode
    return shm == 0 and lo == 0


def free_port():
    """Below the ports that the kernel gives to outgoing connections."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def sockets(but):
    """Listening sockets but for one port, and Unix sockets of ours, in this network."""
    found = []
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            port = int(fields[1].rpartition(":")[2], 16)
            if fields[3] == _TCP_LISTEN and port != but:
                found.append(f"port {port}")
    found += [line.split()[-1] for line in pathlib.Path("/proc/net/unix").read_text().splitlines()
              if "pushpull" in line and "pushpull-lab" not in line]
    return sorted(found)


def descendants(ignore=()):
    """Pids of the living processes below this one, as {pid: command}."""
    parents, commands = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            head, _, rest = (entry / "stat").read_text().rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if state != "Z":
            parents[int(entry.name)] = int(parent)
            commands[int(entry.name)] = head.partition("(")[2]
    found = {}
    for pid in parents:
        above = pid
        while above in parents and above not in ignore and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and pid != above:
            found[pid] = commands[pid]
    return found
