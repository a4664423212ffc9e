"""The helpers that users of Horovod know."""

import pytest


@pytest.mark.checks("helpers.py", groups=[("gloo", 1), ("gloo", 3), ("mpi", 2)])
def test_helpers(check):
    check()
