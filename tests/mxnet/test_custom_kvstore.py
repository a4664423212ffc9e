"""MXNet's own tests of custom stores, written anew from what they check, against our types."""

import pytest


@pytest.mark.checks("custom_kvstore.py", groups=[("gloo", 1), ("gloo", 2), ("gloo-redis", 2),
                                                 ("mpi", 2)])
def test_custom_kvstore(check):
    check()
