"""Gluon's Trainer on our store."""

import pytest


@pytest.mark.checks("trainer.py", groups=[
    ("gloo", 2, {"MXNET_ENGINE_TYPE": "NaiveEngine"}),
    ("gloo", 2, {"MXNET_ENGINE_TYPE": "ThreadedEngine", "MXNET_CPU_WORKER_NTHREADS": "1"}),
    ("gloo", 3, {"MXNET_ENGINE_TYPE": "ThreadedEnginePerDevice"})])
def test_trainer(check):
    check()
