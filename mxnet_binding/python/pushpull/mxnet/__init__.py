"""Registers pushpull's store types with MXNet: after ``import pushpull.mxnet``,
``mx.kv.create('dist_sync_pushpull')`` and ``Trainer(..., kvstore='dist_sync_mpi')`` work."""

from pushpull._errors import CollectiveError, UnsupportedError
from pushpull.mxnet import module
from pushpull.mxnet.store import TYPES, CollectiveStore, register, register_as

__all__ = ["CollectiveError", "CollectiveStore", "TYPES", "UnsupportedError", "register_as"]

register()
module.install()
