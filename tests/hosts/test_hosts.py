"""Groups over several hosts (network namespaces with links of their own), several ranks on each."""
import os
import pathlib
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from labhosts import Lab, why_not  # noqa: E402  (bench/ is no package)

BUILD = pathlib.Path(os.environ.get("PUSHPULL_BUILD", ROOT / "build" / "release"))
RANK = str(BUILD / "bin" / "hosts_rank")

NO_LAB = why_not()
pytestmark = pytest.mark.skipif(NO_LAB is not None, reason=str(NO_LAB))


# Files and shared memory of no more than 512 bytes.
LIMITED = 'trap "" XFSZ; ulimit -f 1; exec "$@"'


def start(lab, hosts, arguments=("1",), command=None, **environment):
    """One process per rank; hosts[r] is the host of rank r, command[r] what starts it."""
    before = command or {}
    env = {**os.environ, "MXNET_KVSTORE_BACKEND": "gloo", "PUSHPULL_SIZE": str(len(hosts)),
           "PUSHPULL_RENDEZVOUS": f"tcp://{lab.hosts[hosts[0]].address}:29500",
           "PUSHPULL_SECRET": "of the test", "PUSHPULL_LOG": "info", **environment}
    return [lab.popen(host, [*before.get(rank, []), RANK, *arguments], text=True,
                      env={**env, "PUSHPULL_RANK": str(rank)}, stdout=subprocess.PIPE,
                      stderr=subprocess.PIPE)
            for rank, host in enumerate(hosts)]


def finish(ranks):
    outputs = [process.communicate(timeout=100) for process in ranks]
    for process, (_, errors) in zip(ranks, outputs):
        assert process.returncode == 0, errors
    return [out.strip() for out, _ in outputs], "".join(errors for _, errors in outputs)


@pytest.mark.parametrize("hosts, places", [
    ([0, 0, 1, 1], ["0 of 2", "1 of 2", "0 of 2", "1 of 2"]),
    ([0, 0, 1], ["0 of 2", "1 of 2", "0 of 1"]),
    ([0, 1, 2, 0, 2, 0], ["0 of 3", "0 of 1", "0 of 2", "1 of 3", "1 of 2", "2 of 3"]),
])
def test_sums_over_hosts_of_several_ranks(hosts, places):
    with Lab(max(hosts) + 1, "none") as lab:
        said, log = finish(start(lab, hosts))
    assert said == places
    carriers = min(hosts.count(host) for host in hosts)
    assert (f"{len(hosts)} ranks on {max(hosts) + 1} hosts exchange through shared memory and, "
            f"{carriers} of each host, through backend gloo") in log


def test_what_a_host_has_crosses_its_link_once():
    rounds, each = 10, 4 << 22  # of the largest tensor, in bytes

    def sent(local):
        with Lab(2, "none") as lab:
            finish(start(lab, [0, 0, 1, 1], (str(rounds),), PUSHPULL_LOCAL=local))
            return max(lab.sent_bytes()) / (rounds * each)

    # 2 (H - 1) / H of a tensor, headers included; ranks that do not share memory send 1.5 of it.
    assert 1.0 < sent("auto") < 1.2
    assert sent("backend") > 1.45


def test_shared_memory_is_insisted_on_within_hosts_only():
    with Lab(2, "none") as lab:
        said, _ = finish(start(lab, [0, 0, 1], PUSHPULL_LOCAL="shm"))
    assert said == ["0 of 2", "1 of 2", "0 of 1"]


def test_a_host_that_cannot_share_memory_does_without():
    """Rank 2 may not make memory, of which rank 3 hears; the other host goes on sharing its own."""
    with Lab(2, "none") as lab:
        ranks = start(lab, [0, 0, 1, 1], command={2: ["sh", "-c", LIMITED, "sh"]})
        said, log = finish(ranks)
    assert said == ["0 of 2", "1 of 2", "0 of 2", "1 of 2"]
    assert "4 ranks on 3 hosts exchange through shared memory and, 1 of each host" in log
    assert "File too large" in log
    assert "another rank of this host cannot share memory" in log


@pytest.mark.parametrize("gone", [1, 3])
def test_a_rank_that_is_killed_is_named_on_every_host(gone):
    with Lab(2, "none") as lab:
        ranks = start(lab, [0, 0, 1, 1], ("0",))
        for process in ranks:
            assert process.stdout.readline() == "ready\n"
        ranks[gone].send_signal(signal.SIGKILL)
        for rank, process in enumerate(ranks):
            out, errors = process.communicate(timeout=30)
            if rank != gone:
                assert process.returncode == 75, errors
                assert out.startswith(f"{gone}: rank {gone} (host host{gone // 2}, pid "), out


def test_mpi_between_hosts():
    with Lab(2, "none") as lab:
        env = {**os.environ, "MXNET_KVSTORE_BACKEND": "mpi", "PUSHPULL_SECRET": "of the test",
               "PUSHPULL_INTERFACE": "10.77.0.0/24", "PUSHPULL_LOG": "info"}
        forwarded = [word for name in env if name.startswith(("PUSHPULL_", "MXNET_"))
                     for word in ("-x", name)]
        done = lab.run("head", ["mpirun", "--allow-run-as-root", *lab.mpirun_arguments(slots=2),
                                *forwarded, RANK],
                       env=env, capture_output=True, text=True, timeout=100, check=False)
        sent = max(lab.sent_bytes())
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "0 of 2", "0 of 2", "1 of 2", "1 of 2"]
    assert "2 of each host, through backend mpi" in done.stderr
    assert sent > 4 << 22
