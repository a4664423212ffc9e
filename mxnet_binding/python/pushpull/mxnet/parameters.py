"""Parameters that are the same on all workers: making them so, and seeing that they still are."""

import hashlib
import types

import mxnet as mx
import numpy as np
from mxnet.gluon.parameter import DeferredInitializationError, ParameterDict

from pushpull import _capi, _errors
from pushpull.mxnet import collectives, group


def broadcast_parameters(params, root_rank=0, prefix=""):
    """Gives all workers the parameters of worker ``root_rank``.

    ``params``: what ``Block.collect_params()`` or ``Module.get_params()`` gives, a dict of arrays, or a list
    of parameters. One whose shape is not known yet is broadcast as soon as it is, on every worker.
    """
    for i, (name, parameter) in enumerate(_named(params)):
        key = f"parameter:{prefix or ''}{name}"
        if not hasattr(parameter, "list_data"):
            group.kvstore().broadcast(key, parameter, root_rank=root_rank, priority=-i)
            continue
        try:
            _broadcast(key, parameter, root_rank, -i)
        except DeferredInitializationError:
            _broadcast_when_initialized(key, parameter, root_rank, -i)


def _named(params):
    """(name, parameter or array) in the network's order where that is known."""
    if isinstance(params, ParameterDict):
        return list(params.items())
    if hasattr(params, "items"):
        return sorted(params.items())
    if isinstance(params, (list, tuple)) and all(hasattr(each, "list_data") for each in params):
        return [(each.name, each) for each in params]
    raise ValueError(f"parameters are a dict of arrays or of parameters, or a list of parameters, not "
                     f"{type(params).__name__}")


def _broadcast(key, parameter, root_rank, priority):
    on_devices = parameter.list_data()
    group.kvstore().broadcast(key, on_devices, on_devices, root_rank=root_rank, priority=priority)


def _broadcast_when_initialized(key, parameter, root_rank, priority):
    original = parameter._init_impl

    def initialize(self, *args, **kwargs):
        original(*args, **kwargs)
        self._init_impl = original
        _broadcast(key, self, root_rank, priority)

    parameter._init_impl = types.MethodType(initialize, parameter)


def broadcast_trainer(trainer, root_rank=0):
    """Gives all workers the parameters and the optimizer's states (momentum, number of updates, learning
    rate) of a Trainer of worker ``root_rank``: after it has loaded a checkpoint, for example. Waits."""
    broadcast_parameters(trainer._params, root_rank, prefix="trainer:")
    mine = None
    if group.rank() == root_rank:
        mine = trainer._updaters[0].get_states(dump_optimizer=True)
    states = collectives.broadcast_object(mine, root_rank, name="trainer")
    if group.rank() != root_rank:
        set_trainer_states(trainer, states)


def set_trainer_states(trainer, states):
    """What Trainer.load_states does with the content of a file."""
    updaters = trainer._updaters
    for updater in updaters:
        updater.set_states(states)
        updater.optimizer = updaters[0].optimizer
    trainer._optimizer = updaters[0].optimizer
    trainer._optimizer.param_dict = dict(enumerate(trainer._params))


def check_parameters(params, when="now", store=None):
    """Raises on every worker where a parameter is not the same, bit for bit, on all; names the first one and
    the workers. Workers that have joined are left out. Waits."""
    named = _named(params)
    rows = _exchange_rows(store or group.kvstore(), "check:parameters",
                          [_digest_of_copies(parameter) for _, parameter in named])
    ranks = np.flatnonzero(rows[:, 0])
    base = rows[ranks[0]]
    differs = rows[ranks] != base
    if not differs.any():
        return
    first = int(np.flatnonzero(differs.any(axis=0))[0])
    others = ranks[differs[:, first]].tolist()
    raise _errors.make(
        _capi.MISMATCH, f"{when} parameter {named[first - 1][0]} differs: {_ranks(others)} "
        f"{'does' if len(others) == 1 else 'do'} not have the value of rank {ranks[0]}; all workers must "
        "start from the same values (broadcast_parameters) and apply the same updates")


def check_order(names, store):
    """Raises where workers have the same parameters in another order: exchanged by position, different ones
    would be summed. ``names``: of this worker's parameters, by position."""
    rows = _exchange_rows(store, "check:order", [_number(name.encode()) for name in names])
    rows = rows[rows[:, 0] != 0]
    for row in rows[1:]:
        same_names = np.array_equal(np.sort(row), np.sort(rows[0]))
        if same_names and not np.array_equal(row, rows[0]):
            first = int(np.flatnonzero(row != rows[0])[0]) - 1
            raise _errors.make(
                _capi.MISMATCH, "the workers have the same parameters in different orders, from number "
                f"{first} on ({names[first]} on rank {store.rank}): build the network in the same order "
                "on all workers")


def _exchange_rows(store, key, numbers):
    """Every worker's numbers as a row, after a 1; zeros for workers that have joined."""
    rows = np.zeros((store.num_workers, len(numbers) + 1), dtype="int64")
    rows[store.rank] = [1, *numbers]
    rows = mx.nd.array(rows, dtype="int64")
    store.pushpull(key, rows)
    return rows.asnumpy()


def _digest_of_copies(parameter):
    copies = parameter.list_data() if hasattr(parameter, "list_data") else [parameter]
    digests = [_number(array.asnumpy().tobytes()) for array in copies]
    # Copies on the devices of one worker that differ make it differ from any other.
    return digests[0] if len(set(digests)) == 1 else _number(repr(digests).encode())


def _number(data):
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)


def _ranks(ranks):
    return f"rank {ranks[0]}" if len(ranks) == 1 else "ranks " + ", ".join(map(str, ranks))
