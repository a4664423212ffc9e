"""MXNet's Module on our store."""

import pytest


@pytest.mark.checks("module_api.py", groups=[("gloo", 3)])
def test_module(check):
    check()
