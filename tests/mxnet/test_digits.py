"""The example trains a real model, whatever carries it, and however many workers there are."""

import re

import numpy as np
import pytest

GROUPS = [("gloo", 1), ("gloo", 2), ("gloo", 3), ("gloo", 4), ("gloo-redis", 2), ("mpi", 2)]


@pytest.fixture(scope="module")
def ended(session_starter):
    """How a group ended, and where it left its parameters; each group runs once."""
    known = {}

    def run(backend, size):
        if (backend, size) not in known:
            group = session_starter(size, "two_runs_of_the_example.py", backend=backend)
            known[backend, size] = group.succeed(timeout=200)[0].out, group.folder
        return known[backend, size]

    return run


@pytest.mark.parametrize("backend, size", GROUPS)
def test_accuracy_and_identical_parameters(ended, backend, size):
    out, _ = ended(backend, size)
    accuracy = re.findall(r"^test accuracy: (0\.\d\d\d)$", out, re.MULTILINE)
    assert len(accuracy) == 2 and float(accuracy[1]) >= 0.97, out
    assert out.count(f"parameters are identical on all {size} workers") == 2


@pytest.mark.parametrize("backend, size", GROUPS[1:])
def test_same_parameters_as_one_process(ended, backend, size):
    _, alone = ended("gloo", 1)
    _, folder = ended(backend, size)
    alone = np.load(alone / "0.npz")
    ranks = [np.load(folder / f"{rank}.npz") for rank in range(size)]
    for name in alone.files:
        expected = alone[name]
        for parameters in ranks:
            assert np.array_equal(parameters[name], ranks[0][name])
        distance = np.linalg.norm(ranks[0][name] - expected)
        assert distance <= 1e-4 * np.linalg.norm(expected), name
