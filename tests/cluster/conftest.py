"""What the cluster tests share: labs of several hosts, a real Slurm, and `pushpull` in them.

Everything here needs root, for network namespaces. What takes long, or programs that only these tests
use, is marked `cluster` and left out unless PUSHPULL_CLUSTER_TESTS=1 (`make test-cluster`).
"""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
for folder in ("bench", "tests/cluster", "tests/launcher"):
    sys.path.insert(0, str(ROOT / folder))

import labhosts  # noqa: E402
import slurm_cluster  # noqa: E402
from launching import Launcher, pushpull_command  # noqa: E402

LONG = os.environ.get("PUSHPULL_CLUSTER_TESTS") == "1"


def pytest_configure(config):
    config.addinivalue_line("markers", "cluster: only by make test-cluster")


def pytest_collection_modifyitems(config, items):
    if LONG:
        return
    left_out = [item for item in items if item.get_closest_marker("cluster")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("cluster")]


class LabLauncher(Launcher):
    """`pushpull` in the head of a lab, where mpirun reaches the hosts."""

    def __init__(self, lab):
        super().__init__()
        self.lab = lab

    def environment(self, extra=None):
        agent = str(ROOT / "tests" / "cluster" / "lab_rsh")
        network = "10.77.0.0/24"
        return super().environment({
            "OMPI_MCA_plm": "rsh", "OMPI_MCA_plm_rsh_agent": agent,
            "OMPI_MCA_oob_tcp_if_include": network, "OMPI_MCA_btl_tcp_if_include": network,
            **(extra or {})})

    def command(self, arguments):
        return self.lab.command("head", [pushpull_command(), *arguments])


@pytest.fixture(scope="module")
def lab():
    reason = labhosts.why_not()
    if reason:
        pytest.skip(reason)
    with labhosts.Lab(4, "1gbit") as made:
        yield made


@pytest.fixture
def launcher(lab):
    instance = LabLauncher(lab)
    yield instance
    instance.close()


@pytest.fixture(scope="module")
def slurm(lab, tmp_path_factory):
    missing = slurm_cluster.missing_programs()
    if missing:
        pytest.fail(f"needs Debian packages {' '.join(missing)} (make test-cluster installs them)")
    with slurm_cluster.SlurmCluster(lab, tmp_path_factory.mktemp("slurm") / "cluster") as cluster:
        yield cluster
