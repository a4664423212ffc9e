"""Gluon's Trainer and MXNet's Module in their forms, on every engine of MXNet."""

import pytest


@pytest.mark.checks("trainer.py", "module_api.py", groups=[
    ("gloo", 2, {"MXNET_ENGINE_TYPE": "NaiveEngine"}),
    ("gloo", 2, {"MXNET_ENGINE_TYPE": "ThreadedEngine", "MXNET_CPU_WORKER_NTHREADS": "1"}),
    ("gloo", 3, {"MXNET_ENGINE_TYPE": "ThreadedEnginePerDevice"})])
def test_trainer_and_module(check):
    check()
