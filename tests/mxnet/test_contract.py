"""The contract of a store, on every backend."""

import pytest


@pytest.mark.checks("contract.py", groups=[("gloo", 1), ("gloo", 2), ("gloo", 4), ("gloo-redis", 2),
                                           ("mpi", 2)])
def test_contract(check):
    check()
