"""The contract of a store, on every backend; MXNet's own tests of custom stores, written anew from what they
check, against our types; and the helpers that users of Horovod know."""

import pytest


@pytest.mark.checks("contract.py", "custom_kvstore.py", "helpers.py",
                    groups=[("gloo", 1), ("gloo", 2), ("gloo", 4), ("gloo-redis", 2), ("mpi", 2)])
def test_contract(check):
    check()
