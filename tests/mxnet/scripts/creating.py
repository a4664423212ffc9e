"""Stores that cannot be made, and why: each with its whole sentence. Runs alone."""

import os

import mxnet as mx

import pushpull
from harness import raised


class Environment:
    """Variables for the length of a with block."""

    def __init__(self, **values):
        self.values = values

    def __enter__(self):
        self.before = {name: os.environ.get(name) for name in self.values}
        self.set(self.values)

    def __exit__(self, *_):
        self.set(self.before)

    @staticmethod
    def set(values):
        for name, value in values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def failure(kind, **environment):
    with Environment(**environment):
        return raised(pushpull.CollectiveError, mx.kv.create, kind)


def check_type_and_environment_that_disagree(kv):
    for kind, backend, said in (("dist_sync_mpi", "mpi", "gloo"),
                                ("dist_sync_gloo", "gloo", "mpi"),
                                ("Dist-Sync-Gloo-Redis", "gloo-redis", "gloo")):
        text = failure(kind, MXNET_KVSTORE_BACKEND=said)
        name = kind.lower().replace("-", "_")
        assert text == (f"kvstore type {name} means backend {backend}, but environment "
                        f"MXNET_KVSTORE_BACKEND says {said}; make them agree, or use dist_sync_pushpull, "
                        "which takes the configured backend"), text


def check_unknown_backend(kv):
    text = failure("dist_sync_pushpull", MXNET_KVSTORE_BACKEND="glue")
    for word in ("glue", "gloo"):
        assert word in text, text


def check_spellings_of_a_backend(kv):
    for spelling in ("gloo", "GLOO"):
        with Environment(MXNET_KVSTORE_BACKEND=spelling):
            store = mx.kv.create("dist_sync_PushPull")
            assert store.type == "dist_sync_gloo"
            store.close()


def check_ranks_that_do_not_exist(kv):
    for rank, size in (("3", "2"), ("x", "2"), ("0", "none"), ("0", "0")):
        text = failure("dist_sync_gloo", PUSHPULL_RANK=rank, PUSHPULL_SIZE=size)
        assert "PUSHPULL_RANK" in text or "PUSHPULL_SIZE" in text, text
    assert "PUSHPULL_RANK" in failure("dist_sync_gloo", PUSHPULL_RANK=None, PUSHPULL_SIZE="2")


def check_one_of_many_that_thinks_it_is_alone(kv):
    text = failure("dist_sync_gloo", PUSHPULL_RANK="0", PUSHPULL_SIZE="1", SLURM_NTASKS="4",
                   SLURM_PROCID="1")
    assert "SLURM_NTASKS" in text, text


def check_nobody_at_the_rendezvous(kv):
    text = failure("dist_sync_gloo", PUSHPULL_RANK="1", PUSHPULL_SIZE="2",
                   PUSHPULL_RENDEZVOUS="tcp://127.0.0.1:1", PUSHPULL_RENDEZVOUS_TIMEOUT="1s")
    assert "127.0.0.1:1" in text, text
    text = failure("dist_sync_gloo", PUSHPULL_RANK="0", PUSHPULL_SIZE="3",
                   PUSHPULL_RENDEZVOUS_TIMEOUT="1s")
    assert "1 of 3" in text and "1" in text and "2" in text, text


def check_names_that_mxnet_does_not_know(kv):
    # MXNet's own store: what happens without the name "dist". Ours is never silently replaced.
    assert mx.kv.create("local").type == "local"
    assert type(kv).__name__ == "dist_sync_pushpull"
