"""The names of ``byteps.mxnet``, on our store: what ``import byteps.mxnet as bps`` gives a script that runs
by ``python -m pushpull --as byteps``."""

from pushpull import _capi, _errors
from pushpull.mxnet import collectives, group, parameters
from pushpull.mxnet.compression import Compression
from pushpull.mxnet.group import local_rank, local_size, rank, shutdown, size
from pushpull.mxnet.optimizer import DistributedOptimizer
from pushpull.mxnet.trainer import DistributedTrainer as _Trainer

__all__ = ["Compression", "DistributedOptimizer", "DistributedTrainer", "broadcast_parameters",
           "byteps_declare_tensor", "byteps_push_pull", "init", "local_rank", "local_size", "rank",
           "shutdown", "size"]


def init(lazy=True):
    """Joins the group of all workers."""
    group.init()


def byteps_declare_tensor(name, **compression):
    """Nothing to do: no key needs to be declared."""
    _no_compression(compression)


def byteps_push_pull(tensor, version=0, priority=0, name=None, is_average=True):
    """Replaces ``tensor`` by the average (or the sum) over all workers."""
    return collectives.allreduce_(tensor, is_average, name, priority)


def broadcast_parameters(params, root_rank=0):
    """Gives all workers the parameters of worker ``root_rank``."""
    parameters.broadcast_parameters(params, root_rank)


class DistributedTrainer(_Trainer):
    """pushpull.mxnet.DistributedTrainer with the arguments of BytePS."""

    def __init__(self, params, optimizer, optimizer_params=None, root_rank=0, compression_params=None):
        compression = Compression.none
        if compression_params:
            compression_params = dict(compression_params)
            if compression_params.pop("fp16", False):
                compression = Compression.fp16
            _no_compression(compression_params)
        super().__init__(params, optimizer, optimizer_params, compression)
        self._root_rank = root_rank

    def _init_params(self):
        # In place of MXNet's own, which takes the values of worker 0 where BytePS takes those of root_rank.
        ready = [parameter for parameter in self._params_to_init if not parameter._deferred_init]
        parameters.broadcast_parameters(ready, self._root_rank, prefix="root:")
        self._params_to_init = [parameter for parameter in self._params_to_init if parameter._deferred_init]


def _no_compression(given):
    if given:
        raise _errors.make(
            _capi.UNSUPPORTED, f"compression by {', '.join(map(str, given))} of byteps.mxnet is not "
            "supported by pushpull; fp16 and bf16 are (Compression)")
