"""AMP, and gradients of 16 bits."""

import pytest


@pytest.mark.checks("mixed_precision.py", groups=[("gloo", 2)])
def test_mixed_precision(check):
    check()
