"""Starts Horovod workers with its Gloo controller, without ssh.

    horovod_gloo_start.py NP PER_HOST LAB COMMAND...

Runs Horovod's rendezvous server here and one worker per rank: on this machine where LAB is `-`,
else rank r in host r // PER_HOST of that lab, while this runs in the lab's head. Horovod 0.28 binds
one of its Gloo contexts to the address of the host's name whatever interface it is told, so a
host's name must resolve to its address, as it does in a lab.
"""
import os
import subprocess
import sys

from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
from horovod.runner.http.http_server import RendezvousServer

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main():
    ranks, per_host, lab, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    names = ["localhost"] if lab == "-" else [f"host{i}" for i in range(ranks // per_host)]
    slots = ranks if lab == "-" else per_host
    plan = get_host_assignments(parse_hosts(",".join(f"{name}:{slots}" for name in names)), ranks)
    server = RendezvousServer(False)
    port = server.start()
    server.init(plan)
    workers = []
    for slot in plan:
        environment = {
            "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1" if lab == "-" else "10.77.0.254",
            "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
            "HOROVOD_GLOO_IFACE": "lo" if lab == "-" else "eth0",
            "HOROVOD_HOSTNAME": slot.hostname,
            "HOROVOD_RANK": slot.rank, "HOROVOD_SIZE": slot.size,
            "HOROVOD_LOCAL_RANK": slot.local_rank, "HOROVOD_LOCAL_SIZE": slot.local_size,
            "HOROVOD_CROSS_RANK": slot.cross_rank, "HOROVOD_CROSS_SIZE": slot.cross_size,
        }
        where = [] if lab == "-" else [sys.executable, "-E", f"{BENCH}/lab", "exec", "--name", lab,
                                       slot.hostname]
        workers.append(subprocess.Popen(
            where + command,
            env={**os.environ, **{key: str(value) for key, value in environment.items()}}))
    codes = [worker.wait() for worker in workers]
    server.stop()
    sys.exit(max(map(abs, codes)))


main()
