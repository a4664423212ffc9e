"""MXNet on pushpull.

Importing it registers the store types: after ``import pushpull.mxnet``, ``mx.kv.create('dist_sync_pushpull')``
and ``Trainer(..., kvstore='dist_sync_mpi')`` work. Beside that it has the helpers that users of Horovod
know: ``init()``, ``rank()``, ``DistributedTrainer`` and so on.
"""

from pushpull._errors import CollectiveError, UnsupportedError
from pushpull.mxnet import module, trainer
from pushpull.mxnet.aliases import register_as
from pushpull.mxnet.collectives import (allgather, allgather_object, allreduce, allreduce_, broadcast,
                                        broadcast_, broadcast_object, grouped_allgather,
                                        grouped_allreduce, grouped_allreduce_, join)
from pushpull.mxnet.compression import Compression
from pushpull.mxnet.group import (barrier, init, is_initialized, kvstore, local_rank, local_size, rank,
                                  shutdown, size)
from pushpull.mxnet.optimizer import DistributedOptimizer
from pushpull.mxnet.parameters import broadcast_parameters, broadcast_trainer, check_parameters
from pushpull.mxnet.store import TYPES, CollectiveStore, register
from pushpull.mxnet.trainer import DistributedTrainer

__all__ = ["CollectiveError", "CollectiveStore", "Compression", "DistributedOptimizer",
           "DistributedTrainer", "TYPES", "UnsupportedError", "allgather", "allgather_object", "allreduce",
           "allreduce_", "barrier", "broadcast", "broadcast_", "broadcast_object", "broadcast_parameters",
           "broadcast_trainer", "check_parameters", "grouped_allgather", "grouped_allreduce",
           "grouped_allreduce_", "init", "is_initialized", "join", "local_rank", "local_size", "rank",
           "kvstore", "register_as", "shutdown", "size"]

register()
module.install()
trainer.install()
