"""Connections that do not belong: scanners, garbage, impossible lengths, half-open and slow ones."""

import collections
import os
import pathlib
import random
import socket

_TCP_LISTEN = "0A"
_TICK = os.sysconf("SC_CLK_TCK")
_GREETINGS = [
    b"",
    b"GET / HTTP/1.1\r\nHost: rank\r\n\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"\xff" * 16,
    b"\x00\x00\x00\x00" * 8,
    b"PUSH",
    bytes(range(256)) * 16,
]


def listening(pids):
    """Addresses at which these processes listen."""
    inodes = {}
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == _TCP_LISTEN:
            inodes[fields[9]] = ("127.0.0.1", int(fields[1].rpartition(":")[2], 16))
    found = set()
    for pid in pids:
        for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                target = os.readlink(entry)
            except OSError:
                continue
            if target.startswith("socket:[") and target[8:-1] in inodes:
                found.add(inodes[target[8:-1]])
    return sorted(found)


def processor_time(pids):
    total = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _TICK


class Siege:
    def __init__(self, pids, seed=1):
        self._pids = pids
        self._chance = random.Random(seed)

    def doors(self):
        return listening(self._pids)

    def lay(self, count):
        """Connects `count` times; how often somebody listened, and the processor time it cost them."""
        doors = self.doors()
        before = processor_time(self._pids)
        made = 0
        half_open = collections.deque()
        for i in range(count):
            if not doors:
                break
            client = socket.socket()
            client.settimeout(5)
            try:
                client.connect(doors[i % len(doors)])
                client.sendall(self._chance.choice(_GREETINGS))
                made += 1
            except OSError:
                client.close()
                continue
            if self._chance.random() < 0.1:
                half_open.append(client)
            else:
                client.close()
            if len(half_open) > 100:
                half_open.popleft().close()
        for client in half_open:
            client.close()
        return made, processor_time(self._pids) - before
