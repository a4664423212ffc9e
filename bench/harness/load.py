"""CPU time that others used on this machine while something of ours ran."""
import os
import time

_TICKS = os.sysconf("SC_CLK_TCK")


def _cpu_by_process(pids=None):
    """CPU seconds per pid: its own and those of its children that ended."""
    used = {}
    for pid in pids if pids is not None else filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
                fields = stat.read().rpartition(")")[2].split()
        except OSError:
            continue
        used[pid] = sum(map(int, fields[11:15])) / _TICKS
    return used


class ForeignLoad:
    """Started before our processes are: whatever exists then, and what it starts, is foreign.

    A process that ends hands its time to its parent, so what vanished is subtracted, not lost. What
    others both start and end through processes that are new themselves goes unseen.
    """

    def __init__(self):
        self.before = _cpu_by_process()
        self.before.pop(str(os.getpid()), None)
        self.since = time.monotonic()

    def cpus(self):
        """How many CPUs others kept busy on average since the start."""
        after = _cpu_by_process(self.before)
        used = sum(after.values()) - sum(self.before.values())
        return max(0.0, used) / max(1e-3, time.monotonic() - self.since)


def wait_until_quiet(limit, threshold=0.15):
    """Waits until others use less than `threshold` CPUs, at most `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        load = ForeignLoad()
        time.sleep(0.5)
        if load.cpus() < threshold:
            return True
    return False
