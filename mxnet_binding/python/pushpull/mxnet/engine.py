"""Stores as MXNet's engine sees them: thin wrappers of the bridge's C functions."""

import contextlib
import ctypes
import functools
import os

import mxnet as mx

from pushpull import _capi, _errors


def _raise_from_core(code):
    if code:
        raise _errors.from_core(code)


def _raise_from_bridge(code):
    if code:
        raise _errors.from_bridge(code)


class Bridge:
    """The bridge to the MXNet of this process."""

    @staticmethod
    @functools.lru_cache(maxsize=None)
    def open():
        return Bridge()

    def __init__(self):
        self._library = _capi.bridge()
        self._handle = ctypes.c_void_p()
        _raise_from_bridge(self._library.pushpull_bridge_open(mx.base._LIB._name.encode(),
                                                              ctypes.byref(self._handle)))
        base, other = mx.nd.zeros((4, 2)), mx.nd.zeros((4, 2))
        view = base[1:3]
        _raise_from_bridge(self._library.pushpull_bridge_verify(self._handle, base.handle, view.handle,
                                                                other.handle))

        self._immediate = os.environ.get("MXNET_ENGINE_TYPE") == "NaiveEngine"
        if not self._immediate:
            self.make_room_for_errors()

    def make_room_for_errors(self):
        """In the engine's list of them, which it must not move while threads read it."""
        scratch = [mx.nd.empty((1,)) for _ in range(64)]
        handles = (ctypes.c_void_p * len(scratch))(*(array.handle for array in scratch))
        _raise_from_bridge(self._library.pushpull_bridge_make_room(self._handle, handles, len(scratch)))

    def connect(self, kind):
        """Joins the group; returns when all workers have."""
        store = ctypes.c_void_p()
        _raise_from_core(_capi.core().pushpull_create(kind.encode(), None, ctypes.byref(store)))
        bridged = ctypes.c_void_p()
        _raise_from_bridge(self._library.pushpull_bridge_attach(self._handle, store, self._immediate,
                                                                ctypes.byref(bridged)))
        return Channel(store, bridged)


class Channel:
    """One store's C handles, and the calls on them."""

    def __init__(self, store, bridged):
        self._core = core = _capi.core()
        self._library = bridge = _capi.bridge()
        self._store = store
        self._bridged = bridged
        self._ours = True  # false in the child of a fork
        self._closed = None  # makes the exception that every call raises
        self._pending_error = None
        self.type = core.pushpull_type(store).decode()
        self.rank = core.pushpull_rank(store)
        self.num_workers = core.pushpull_size(store)
        self.local_rank = core.pushpull_local_rank(store)
        self.local_size = core.pushpull_local_size(store)
        self.pushpull = self._starter(bridge.pushpull_bridge_pushpull)
        self.broadcast = self._starter(bridge.pushpull_bridge_broadcast)

    def _starter(self, function):
        """A call of the function: True, or False where the array is not in host memory."""
        bridged = self._bridged

        def start(*arguments):
            if self._closed is not None:
                raise self._closed()
            if self._pending_error is not None:
                self._raise_pending()
            code = function(bridged, *arguments)
            if code == 0:
                return True
            if code == _capi.NOT_ON_HOST:
                return False
            raise _errors.from_bridge(code)

        return start

    def check(self, name, array):
        """Raises where an array cannot be exchanged on any device."""
        code = self._library.pushpull_bridge_check(self._bridged, name, array)
        if code not in (0, _capi.NOT_ON_HOST):
            raise _errors.from_bridge(code)

    def idle(self, milliseconds):
        return bool(self._library.pushpull_bridge_idle(self._bridged, milliseconds))

    def handed_over_errors(self):
        return bool(self._library.pushpull_bridge_handed_over_errors(self._bridged))

    def barrier(self):
        """Gives a function that waits some milliseconds and tells whether all workers are there."""
        return self._waiting(self._library.pushpull_bridge_barrier)

    def join(self):
        """The same for a join; when all are there, the function's `last` is the worker that came last."""
        return self._waiting(self._library.pushpull_bridge_join,
                             self._library.pushpull_bridge_group_wait_last)

    @contextlib.contextmanager
    def _waiting(self, begin, last=None):
        self.raise_if_closed()
        wait = ctypes.c_void_p()
        _raise_from_bridge(begin(self._store, ctypes.byref(wait)))

        def reached(milliseconds):
            code = self._library.pushpull_bridge_group_wait(wait, milliseconds)
            if code == _capi.PENDING:
                return False
            _raise_from_bridge(code)
            if last is not None:
                reached.last = last(wait)
            return True

        try:
            yield reached
        finally:
            self._library.pushpull_bridge_group_wait_free(wait)

    def failure(self):
        """The group's error, or None while it is well."""
        if self._closed is not None:
            return None
        code = self._core.pushpull_failure(self._store)
        return _errors.from_core(code) if code else None

    def abort(self, reason):
        if self._closed is None:
            self._core.pushpull_abort(self._store, reason.encode(errors="replace"))

    def refuse(self, call):
        """Raises the sentence for a call that a collective store does not have."""
        raise _errors.from_core(self._core.pushpull_unsupported(self._store, call.encode()))

    def dump(self):
        self.raise_if_closed()
        return self._core.pushpull_dump(self._store).decode(errors="replace")

    def close(self, slice_ms):
        if self._closed is not None:
            return
        while not self.idle(slice_ms):
            pass
        self._closed = functools.partial(
            _errors.invalid, f"the store ({self.type}, rank {self.rank}) was closed: make a new one")
        self._core.pushpull_close(self._store)

    def free(self):
        """Gives the handles back. Only after close(), and when nobody will use the channel again."""
        if self._ours:
            self._library.pushpull_bridge_detach(self._bridged)
            self._core.pushpull_free(self._store)

    def raise_at_next_call(self, error):
        self._pending_error = error

    def error_of_next_call(self):
        return self._pending_error

    def _raise_pending(self):
        error, self._pending_error = self._pending_error, None
        raise error

    def mark_dead(self, sentence):
        """Every later call raises; nothing of the group is touched."""
        self._closed = functools.partial(_errors.invalid, sentence)
        self._ours = False

    def raise_if_closed(self):
        if self._closed is not None:
            raise self._closed()
