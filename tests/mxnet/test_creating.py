"""Stores that cannot be made."""

import pytest


@pytest.mark.checks("creating.py", groups=[("gloo", 1)])
def test_creating(check):
    check()
