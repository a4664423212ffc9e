"""MXNet's Module on our store."""

import pytest


@pytest.mark.checks("module_api.py", groups=[("gloo", 2)])
def test_module(check):
    check()
