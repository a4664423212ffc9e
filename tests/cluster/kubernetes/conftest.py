"""Needs a cluster of its own: `make test-kubernetes`. Left out of `make test`."""

import os
import pathlib
import sys

import pytest

collect_ignore_glob = [] if os.environ.get("PUSHPULL_TEST_KUBERNETES") else ["test_*.py"]

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from cluster import Cluster  # noqa: E402


@pytest.fixture(scope="session")
def cluster():
    instance = Cluster()
    yield instance
    instance.close()


@pytest.fixture
def space(cluster):
    """A namespace that holds one test."""
    instance = cluster.new_space()
    yield instance
    instance.close()
