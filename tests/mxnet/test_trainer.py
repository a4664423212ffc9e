"""Gluon's Trainer on our store."""

import pytest


@pytest.mark.checks("trainer.py", groups=[("gloo", 2), ("gloo", 3)])
def test_trainer(check):
    check()
