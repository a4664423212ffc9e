"""The example trains a real model, whatever carries it, and however many workers there are."""

import pathlib
import re

import numpy as np
import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gluon_digits.py"


def run(start, size, *arguments, backend="gloo"):
    return start(size, EXAMPLE, *arguments, backend=backend).succeed(timeout=200)


@pytest.mark.parametrize("backend, size", [("gloo", 1), ("gloo", 2), ("gloo", 4), ("gloo-redis", 2),
                                           ("mpi", 2)])
def test_accuracy_and_identical_parameters(start, backend, size):
    out = run(start, size, "--epochs", 8, backend=backend)[0].out
    accuracy = re.search(r"^test accuracy: (0\.9\d\d)$", out, re.MULTILINE)
    assert accuracy and float(accuracy.group(1)) >= 0.97, out
    assert f"parameters are identical on all {size} workers" in out


@pytest.fixture(scope="module")
def alone(session_starter, tmp_path_factory):
    """Parameters after 20 steps of one process on the global batch."""
    path = tmp_path_factory.mktemp("alone") / "parameters.npz"
    run(session_starter, 1, "--steps", 20, "--save", path)
    return np.load(path)


@pytest.mark.parametrize("backend, size", [("gloo", 2), ("gloo", 3), ("gloo-redis", 2), ("mpi", 2)])
def test_same_parameters_as_one_process(start, tmp_path, alone, backend, size):
    run(start, size, "--steps", 20, "--save", tmp_path / "{rank}.npz", backend=backend)
    ranks = [np.load(tmp_path / f"{rank}.npz") for rank in range(size)]
    for name in alone.files:
        expected = alone[name]
        for parameters in ranks:
            assert np.array_equal(parameters[name], ranks[0][name])
        distance = np.linalg.norm(ranks[0][name] - expected)
        assert distance <= 1e-4 * np.linalg.norm(expected), name
