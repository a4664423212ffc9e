"""Gluon's Trainer, averaging over all workers; and what MXNet's own says about sparse gradients."""

import functools
import logging

from mxnet import gluon
from mxnet.kvstore import KVStoreBase

from pushpull import _capi, _errors
from pushpull.mxnet import collectives, group, parameters
from pushpull.mxnet.compression import Compression
from pushpull.mxnet.optimizer import DistributedOptimizer
from pushpull.mxnet.store import CollectiveStore

_LOG = logging.getLogger("pushpull")


def refuse_sparse(params):
    for parameter in params:
        if parameter._grad_stype != "default" or parameter._stype != "default":
            raise _errors.make(
                _capi.UNSUPPORTED, f"parameter {parameter.name} has sparse gradients, which are not "
                "exchanged: use dense ones (sparse_grad=False, no row_sparse parameters)")


def install():
    """Lets every Trainer on a collective store refuse sparse gradients in these words; once."""
    original = gluon.Trainer._init_kvstore
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def init_kvstore(self):
        if (self._contains_sparse_weight or self._contains_sparse_grad) and _is_ours(
                self._kvstore_params["kvstore"]):
            refuse_sparse(self._params)
        original(self)

    gluon.Trainer._init_kvstore = init_kvstore


def _is_ours(store):
    if isinstance(store, str):
        store = KVStoreBase.kv_registry.get(store.lower())
        return isinstance(store, type) and issubclass(store, CollectiveStore)
    return isinstance(store, CollectiveStore)


class DistributedTrainer(gluon.Trainer):
    """A Trainer whose step() averages the gradients over all workers first: pass it the number of samples of
    *this* worker. It works in the group of ``pushpull.mxnet.init()``.

    ``compression``: Compression.fp16 or bf16 send half the bytes. ``gradient_predivide_factor``: the part of
    the division that happens before the sum; by default 1, with compression the number of workers, so that
    no sum overflows. ``prefix``: tells the keys of several trainers apart. ``accumulate``: gradients of so
    many steps are added up before they are exchanged and used once. ``check_every``: after so many updates
    compares all parameters bit by bit (0: never).
    """

    def __init__(self, params, optimizer, optimizer_params=None, compression=Compression.none,
                 gradient_predivide_factor=None, prefix=None, accumulate=1, check_every=0):
        if isinstance(optimizer, DistributedOptimizer):
            _LOG.warning("DistributedTrainer averages the gradients itself: using the optimizer inside "
                         "DistributedOptimizer")
            optimizer = optimizer.unwrap()
        if accumulate < 1:
            raise ValueError(f"accumulate is a number of steps, 1 or more, not {accumulate}")
        self._group_store = group.kvstore()
        super().__init__(params, optimizer, optimizer_params, kvstore=self._group_store,
                         update_on_kvstore=False)
        refuse_sparse(self._params)
        workers = self._group_store.num_workers
        if gradient_predivide_factor is None:
            gradient_predivide_factor = 1.0 if compression is Compression.none else float(workers)
        self._compression = compression
        self._prescale = 1.0 / gradient_predivide_factor
        # Scaling once, where the optimizer scales anyway, costs nothing.
        self._scale *= gradient_predivide_factor / workers
        self._prefix = prefix or ""
        self._accumulate = accumulate
        self._passes = 0  # since the last exchange
        self._batch_size = 0
        self._check_every = check_every
        self._updates = 0
        self._order_checked = False
        if accumulate > 1:
            for parameter in self._params:
                if parameter.grad_req == "write":
                    parameter.grad_req = "add"

    def step(self, batch_size, ignore_stale_grad=False):
        """Averages and updates. ``batch_size``: of this worker. With ``accumulate=n`` every n-th call does,
        as one step on the data of all n."""
        self._prepare()
        self._passes += 1
        self._batch_size += batch_size
        if self._passes == self._accumulate:
            self._finish_step(ignore_stale_grad)

    def _prepare(self):
        if not self._kv_initialized:
            self._init_kvstore()
        if self._params_to_init:
            self._init_params()

    def _finish_step(self, ignore_stale_grad=False):
        batch_size, self._batch_size, self._passes = self._batch_size, 0, 0
        super().step(batch_size, ignore_stale_grad)
        if self._accumulate > 1:
            for parameter in self._params:
                if parameter.grad_req == "add":
                    parameter.zero_grad()

    def _update(self, ignore_stale_grad=False):
        super()._update(ignore_stale_grad)
        self._updates += 1
        if self._check_every and self._updates % self._check_every == 0:
            parameters.check_parameters(self._params, f"after update {self._updates}",
                                        self._group_store)

    def _allreduce_grads(self):
        if not self._order_checked:
            self._order_checked = True
            parameters.check_order([parameter.name for parameter in self._params], self._group_store)
        for i, parameter in enumerate(self._params):
            if parameter.grad_req == "null":
                continue
            grads = parameter.list_grad()
            wires = [self._compression.compress(grad) for grad in grads]
            self._group_store.pushpull(f"{self._prefix}{i}", wires, priority=-i, prescale=self._prescale)
            for wire, grad in zip(wires, grads):
                self._compression.decompress(wire, grad)

    # Trainer's own would broadcast the parameters before, and hang where one worker calls them alone.
    def save_states(self, fname):
        """Writes the optimizer's states to a file; one worker may do it alone."""
        with open(fname, "wb") as states:
            states.write(self._updaters[0].get_states(dump_optimizer=True))

    def load_states(self, fname):
        """Reads what save_states() wrote. Where one worker does it alone, broadcast_trainer() from it after."""
        with open(fname, "rb") as states:
            parameters.set_trainer_states(self, states.read())

    def join(self):
        """For a worker that has run out of data: takes part in the steps of the others with zeros until all
        have joined, then gives all workers the parameters and optimizer states of the one that joined
        last. Gives its rank. All workers call it, with equal numbers of steps too."""
        self._prepare()
        if self._passes:
            self._finish_step()
        last = self._group_store.join()
        self._order_checked = True  # by those that had data; a worker without any must not come late
        parameters.broadcast_trainer(self, last)
        self._updates = collectives.broadcast_object(self._updates, last, name="updates")
        return last
