"""The names of ``horovod.mxnet``, on our store: what ``import horovod.mxnet as hvd`` gives a script that
runs by ``python -m pushpull --as horovod``."""

from pushpull import _capi, _errors
from pushpull.mxnet import collectives, group
from pushpull.mxnet.collectives import (allgather, allgather_object, broadcast, broadcast_,
                                        broadcast_object, grouped_allgather)
from pushpull.mxnet.compression import Compression
from pushpull.mxnet.group import is_initialized, local_rank, local_size, rank, shutdown, size
from pushpull.mxnet.optimizer import DistributedOptimizer as _Optimizer
from pushpull.mxnet.parameters import broadcast_parameters
from pushpull.mxnet.trainer import DistributedTrainer as _Trainer

__all__ = ["Average", "Compression", "DistributedOptimizer", "DistributedTrainer", "Sum", "allgather",
           "allgather_object", "allreduce", "allreduce_", "broadcast", "broadcast_", "broadcast_object",
           "broadcast_parameters", "grouped_allgather", "grouped_allreduce", "grouped_allreduce_", "init",
           "is_initialized", "local_rank", "local_size", "rank", "shutdown", "size"]

Average = "Average"
Sum = "Sum"


def init(comm=None, process_sets=None):
    """Joins the group of all workers."""
    if comm or process_sets:
        _refuse("init() with a communicator or process sets", "the group is made of all started workers")
    group.init()


def _with_horovods_arguments(call):
    def wrapped(tensor, average=None, name=None, priority=0, prescale_factor=1.0, postscale_factor=1.0,
                process_set=None, op=None):
        if process_set is not None:
            _refuse_process_sets()
        if op not in (None, Average, Sum):
            _refuse(f"the operation {op}", "sum and average are there")
        if average is None:
            average = op != Sum
        return call(tensor, average, name, priority, prescale_factor, postscale_factor)

    wrapped.__name__ = call.__name__
    wrapped.__doc__ = call.__doc__
    return wrapped


allreduce = _with_horovods_arguments(collectives.allreduce)
allreduce_ = _with_horovods_arguments(collectives.allreduce_)
grouped_allreduce = _with_horovods_arguments(collectives.grouped_allreduce)
grouped_allreduce_ = _with_horovods_arguments(collectives.grouped_allreduce_)


class DistributedTrainer(_Trainer):
    """pushpull.mxnet.DistributedTrainer with Horovod's arguments."""

    # num_groups: calls travel together anyway, as many as fit into a batch.
    def __init__(self, params, optimizer, optimizer_params=None, compression=Compression.none,
                 gradient_predivide_factor=None, prefix=None, num_groups=0, process_set=None):
        if process_set is not None:
            _refuse_process_sets()
        super().__init__(params, optimizer, optimizer_params, compression, gradient_predivide_factor,
                         prefix)


class DistributedOptimizer(_Optimizer):
    """pushpull.mxnet.DistributedOptimizer with Horovod's arguments."""

    def __init__(self, optimizer, gradient_predivide_factor=1.0, num_groups=0, process_set=None):
        if process_set is not None:
            _refuse_process_sets()
        super().__init__(optimizer, gradient_predivide_factor)


def mpi_enabled():
    """Whether MPI carries the exchanges."""
    return group.is_initialized() and group.kvstore().type == "dist_sync_mpi"


def gloo_enabled():
    """Whether Gloo does."""
    return group.is_initialized() and not mpi_enabled()


def mpi_threads_supported():
    """Whether other threads may use MPI too: pushpull asks MPI for that."""
    return mpi_enabled()


def mpi_built():
    return True


def gloo_built():
    return True


def nccl_built():
    return 0


def _not_built():
    return False


cuda_built = rocm_built = ddl_built = ccl_built = _not_built


def _refused(name, instead):
    def refuse(*args, **kwargs):
        _refuse(f"{name}()", instead)

    refuse.__name__ = name
    return refuse


alltoall = _refused("alltoall", "allgather() gives every worker all parts, each takes its own")
reducescatter = _refused("reducescatter", "allreduce() gives every worker the whole sum")
grouped_reducescatter = _refused("grouped_reducescatter", "allreduce() gives every worker the whole sum")
add_process_set = _refused("add_process_set", "all workers form one group")
remove_process_set = _refused("remove_process_set", "all workers form one group")
ProcessSet = _refused("ProcessSet", "all workers form one group")
start_timeline = _refused("start_timeline", "MXNet's profiler shows every exchange by its key")
stop_timeline = _refused("stop_timeline", "MXNet's profiler shows every exchange by its key")
cross_rank = _refused("cross_rank", "rank() and local_rank() are there")
cross_size = _refused("cross_size", "size() and local_size() are there")


def _refuse(what, instead):
    raise _errors.make(_capi.UNSUPPORTED, f"{what} of horovod.mxnet is not supported by pushpull; {instead}")


def _refuse_process_sets():
    _refuse("a process set", "all workers form one group")
