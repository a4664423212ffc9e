"""The KVStore classes that MXNet's registry gets."""

import itertools
import logging
import numbers
import threading

from mxnet.kvstore import KVStoreBase
from mxnet.ndarray import NDArray

from pushpull import _capi, _errors
from pushpull.mxnet import arrays, lifecycle
from pushpull.mxnet.engine import Bridge

_LOG = logging.getLogger("pushpull")

TYPES = ("dist_sync_mpi", "dist_sync_gloo", "dist_sync_gloo_redis", "dist_sync_pushpull")

# How long a wait goes on before Python looks at signals (Ctrl-C).
_SLICE_MS = 100


class CollectiveStore(KVStoreBase):
    """Exchanges arrays with all other workers: sums (pushpull) and copies (broadcast).

    Made by ``mx.kv.create(type)``. Calls return at once; MXNet's engine runs the exchange when the
    arrays are ready, and whoever reads the result waits for it. What fails later is raised there, as
    CollectiveError; after a failure of the group every later call raises it too.
    """

    requested_type = "dist_sync_pushpull"

    def __init__(self):
        self._names = {}
        self.unnamed = {}  # how many calls of each helper went without a name, see collectives.py
        self._thread = threading.get_ident()
        self._bridge = Bridge.open()
        self._channel = self._bridge.connect(self.requested_type)
        self._start_pushpull = self._channel.pushpull
        self._start_broadcast = self._channel.broadcast
        self._type = self._channel.type
        self._rank = self._channel.rank
        self._num_workers = self._channel.num_workers
        lifecycle.watch(self)
        if self._rank == 0:
            _LOG.info("%s: pushpull gives the sum over %d workers; Module divides by it, with Trainer "
                      "pass the global batch size to step()", self._type, self._num_workers)

    # -- who we are -----------------------------------------------------------------------------
    @property
    def type(self):
        """The store's type name, such as 'dist_sync_mpi'."""
        return self._type

    @property
    def rank(self):
        """This worker's number, from 0 to num_workers - 1."""
        return self._rank

    @property
    def num_workers(self):
        """How many workers there are."""
        return self._num_workers

    @property
    def local_rank(self):
        """This worker's number among those on its host."""
        return self._channel.local_rank

    @property
    def local_size(self):
        """How many workers there are on this host."""
        return self._channel.local_size

    @staticmethod
    def is_capable(capability):
        """Whether the store can run an optimizer itself ('optimizer'): no, workers update their copies."""
        if capability.lower() == KVStoreBase.OPTIMIZER:
            return False
        raise ValueError(f"unknown capability: {capability}")

    # -- exchanges ------------------------------------------------------------------------------
    def pushpull(self, key, ins=None, outs=None, priority=0, *, value=None, out=None, prescale=1.0,
                 postscale=1.0):
        """outs = postscale * sum over all workers of prescale * ins.

        ``ins`` is an array, or a list with one array per device (then their sum counts); ``outs`` the
        same, every array in it gets the result; without ``outs`` the result replaces ``ins``. ``key`` is an
        int or a str, or a list of them: then ``ins`` and ``outs`` have one entry per key. MXNet's
        argument names ``value`` and ``out`` work too. Higher ``priority`` goes first.
        """
        if value is not None or out is not None:
            ins = _one_of("pushpull", "ins", ins, "value", value)
            outs = _one_of("pushpull", "outs", outs, "out", out)
        if isinstance(key, (list, tuple)):
            for each in arrays.split_keys("pushpull", key, ins, outs):
                self.pushpull(*each, priority=priority, prescale=prescale, postscale=postscale)
            return
        self._thread = threading.get_ident()
        name = self._names.get(key) or self._name(key)
        if outs is None:
            outs = ins
        if ins.__class__ is list and len(ins) == 1:
            ins = ins[0]
        if outs.__class__ is list and len(outs) == 1:
            outs = outs[0]
        if isinstance(ins, NDArray) and isinstance(outs, NDArray):
            if self._start_pushpull(name, ins.handle, outs.handle, priority, prescale, postscale):
                return
        self._pushpull_devices(name, ins, outs, priority, prescale, postscale)

    def _pushpull_devices(self, name, ins, outs, priority, prescale, postscale):
        ins = self._checked(name, "value", ins)
        outs = self._checked(name, "out", outs)
        total = arrays.sum_on_host(ins)
        self._start_pushpull(name, total.handle, total.handle, priority, prescale, postscale)
        arrays.copy_to_all(total, outs)

    def broadcast(self, key, value, out=None, priority=0, *, root_rank=None):
        """Copies one worker's value to all.

        ``broadcast(key, value, root_rank)``: ``value`` of that worker replaces ``value`` everywhere.
        ``broadcast(key, value, out)``, MXNet's form: ``value`` of worker 0 is written to ``out``
        everywhere. Device lists and lists of keys as for pushpull.
        """
        if isinstance(out, numbers.Integral):
            root_rank = _one_of("broadcast", "root_rank", root_rank, "its third argument", out)
            out = None
        if out is None and root_rank is None:
            raise TypeError("broadcast() needs a root rank, or arrays to write to: "
                            "broadcast(key, value, root_rank) or broadcast(key, value, out)")
        root = self._root(root_rank)
        if isinstance(key, (list, tuple)):
            for each in arrays.split_keys("broadcast", key, value, out):
                self.broadcast(*each, priority=priority, root_rank=root)
            return
        self._thread = threading.get_ident()
        name = self._names.get(key) or self._name(key)
        values = self._checked(name, "value", value)
        outs = values if out is None else self._checked(name, "out", out)
        # Arrays of other devices, and all but the first of a list, get copies.
        if self._start_broadcast(name, values[0].handle, outs[0].handle, root, priority):
            arrays.copy_to_all(outs[0], outs[1:])
            return
        staged = arrays.sum_on_host(values[:1])
        self._start_broadcast(name, staged.handle, staged.handle, root, priority)
        arrays.copy_to_all(staged, outs)

    def barrier(self):
        """Waits until all earlier calls of all workers are done."""
        with self._channel.barrier() as reached:
            while not reached(_SLICE_MS):
                pass

    _barrier = barrier  # the name in scripts for MXNet's own stores

    def join(self):
        """For a worker that has run out of data; gives the worker that joined last, when all have.

        Until then the others' pushpulls go on, and this worker takes part in them with zeros. What they
        computed meanwhile this worker does not have: the one that joined last has the newest values, so
        broadcast from it (``DistributedTrainer.join`` does). Others' broadcasts fail meanwhile.
        """
        with self._channel.join() as reached:
            while not reached(_SLICE_MS):
                pass
        self.unnamed.clear()
        return reached.last

    def close(self):
        """Leaves the group in good order, after the calls made so far. Closing twice is fine.

        Happens by itself at the end of the process. Later calls raise CollectiveError.
        """
        self._channel.close(_SLICE_MS)

    def dump(self):
        """What the store is doing, for people: pending keys, who is missing, connections."""
        return self._channel.dump()

    # -- what a collective store does not have --------------------------------------------------
    def init(self, *args, **kwargs):
        """Not supported; no key needs it."""
        self._refuse("init")

    def push(self, *args, **kwargs):
        """Not supported: use pushpull."""
        self._refuse("push")

    def pull(self, *args, **kwargs):
        """Not supported: use pushpull or broadcast."""
        self._refuse("pull")

    def row_sparse_pull(self, *args, **kwargs):
        """Not supported: use dense parameters."""
        self._refuse("row_sparse_pull")

    def set_gradient_compression(self, *args, **kwargs):
        """Not supported."""
        self._refuse("set_gradient_compression")

    def set_optimizer(self, *args, **kwargs):
        """Not supported: every worker updates its own copy."""
        self._refuse("set_optimizer")

    def save_optimizer_states(self, *args, **kwargs):
        """Not supported: use Trainer.save_states or Module.save_optimizer_states."""
        self._refuse("save_optimizer_states")

    def load_optimizer_states(self, *args, **kwargs):
        """Not supported: use Trainer.load_states or Module.load_optimizer_states."""
        self._refuse("load_optimizer_states")

    def _refuse(self, call):
        self._channel.refuse(call)

    # -- helpers --------------------------------------------------------------------------------
    def _name(self, key):
        """The bytes under which core knows a key; remembered, as keys come again with every step."""
        if isinstance(key, bool) or not isinstance(key, (numbers.Integral, str)):
            raise TypeError(f"a key is an int or a str, or a list of them, not {type(key).__name__}")
        text = str(key)
        if not text or "\0" in text:
            raise ValueError("a key must not be empty nor contain a zero character")
        name = self._names[key] = text.encode()
        return name

    def _root(self, root_rank):
        if root_rank is None:
            return 0
        if isinstance(root_rank, bool) or not isinstance(root_rank, numbers.Integral):
            raise TypeError(f"a root rank is an int, not {type(root_rank).__name__}")
        if not 0 <= root_rank < self._num_workers:
            raise _errors.invalid(f"root rank {root_rank} does not exist: there are "
                                  f"{self._num_workers} workers, 0 to {self._num_workers - 1}")
        return int(root_rank)

    def _checked(self, name, argument, given):
        """A list of arrays that can be exchanged and are alike."""
        listed = arrays.as_list(argument, given)
        for array in listed:
            self._channel.check(name, array.handle)
        arrays.check_alike(name, argument, listed)
        return listed

    def __del__(self):
        lifecycle.collected(self)


def _one_of(call, first_name, first, second_name, second):
    if second is None:
        return first
    if first is not None:
        raise TypeError(f"{call}() got both {first_name} and {second_name}, which mean the same")
    return second


def _spellings(name):
    """Every way of writing the name with '-' for some of its '_'."""
    parts = name.split("_")
    for signs in itertools.product("_-", repeat=len(parts) - 1):
        yield "".join(part + sign for part, sign in zip(parts, (*signs, "")))


def register():
    """Makes all types known to mx.kv.create, which looks names up in lower case."""
    for name in TYPES:
        store = type(name, (CollectiveStore,), {"requested_type": name, "__module__": __name__,
                                                "__doc__": CollectiveStore.__doc__})
        for spelling in _spellings(name):
            KVStoreBase.kv_registry[spelling] = store
