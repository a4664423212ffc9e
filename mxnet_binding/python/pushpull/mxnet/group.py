"""The group that the helpers of this package work in: one store of the process, from init() to shutdown()."""

from mxnet.kvstore import KVStoreBase


class _Group:
    """Holds the store that init() made, or was given."""

    def __init__(self):
        self._store = None
        self._ours = False

    def init(self, store=None):
        if self._store is not None and store in (None, self._store):
            return
        if self._store is not None:
            raise ValueError("init() was called before with another store: call shutdown() first")
        self._ours = store is None
        self._store = KVStoreBase.kv_registry["dist_sync_pushpull"]() if store is None else store

    def shutdown(self):
        store, self._store = self._store, None
        if store is not None and self._ours:
            store.close()

    def kvstore(self):
        if self._store is None:
            raise ValueError("there is no group yet: call pushpull.mxnet.init() first")
        return self._store

    def is_initialized(self):
        return self._store is not None


_group = _Group()


def init(store=None):
    """Joins the group of all workers, once; later calls do nothing. ``store``: use this store, which stays
    the caller's."""
    _group.init(store)


def shutdown():
    """Leaves the group in good order. Happens by itself at the end of the process."""
    _group.shutdown()


def is_initialized():
    """Whether init() was called, and shutdown() was not since."""
    return _group.is_initialized()


def kvstore():
    """The store that the helpers use: whatever they do not offer, it does."""
    return _group.kvstore()


def rank():
    """This worker's number, from 0 to size() - 1."""
    return kvstore().rank


def size():
    """How many workers there are."""
    return kvstore().num_workers


def local_rank():
    """This worker's number among those on its host."""
    return kvstore().local_rank


def local_size():
    """How many workers there are on this host."""
    return kvstore().local_size


def barrier():
    """Waits until all earlier calls of all workers are done."""
    kvstore().barrier()
