"""How stores end: at exit, by an uncaught exception, in a forked child."""

import atexit
import functools
import logging
import os
import sys
import threading
import weakref

import mxnet as mx

from pushpull import _capi, _errors

_LOG = logging.getLogger("pushpull")

# "restart me": starting the whole job again helps.
EXIT_RESTART = 75

_SLICE_MS = 100


class Lifecycle:
    """The stores of this process, and what has to happen to them when something ends."""

    def __init__(self):
        self._stores = weakref.WeakSet()
        self._pid = os.getpid()
        # MXNet registered its own handler when it was imported, so it runs after this one.
        atexit.register(self._at_exit)
        os.register_at_fork(before=self._before_fork, after_in_child=self._in_child)
        self._next_hook = sys.excepthook
        sys.excepthook = self._uncaught
        self._next_thread_hook = threading.excepthook
        threading.excepthook = self._uncaught_in_thread

    def add(self, store):
        self._stores.add(store)

    # -- the end of the process -----------------------------------------------------------------
    def _at_exit(self):
        seen = _errors.CollectiveError.raised
        unread = None
        try:
            mx.nd.waitall()
        except _errors.CollectiveError as error:
            unread = error if not seen else None
        except Exception as error:  # an operator's own error; MXNet does not report it at exit either
            _LOG.debug("at exit: %s", error)
        for store in list(self._stores):
            unread = unread or store._channel.error_of_next_call()
            store._channel.close(_SLICE_MS)
        # A script that never looked at its results must not end as if all were well.
        if isinstance(unread, _errors.CollectiveError):
            print(f"pushpull: an exchange failed and nobody read its result: {unread}", file=sys.stderr)
            self._exit_with_code_of(unread, otherwise=1)

    def _exit_with_code_of(self, error, otherwise=None):
        code = EXIT_RESTART if self._restartable(error) else otherwise
        if code is not None:
            _capi.bridge().pushpull_bridge_exit_with(code)

    def _restartable(self, error):
        if error.restartable:
            return True
        # What MXNet raised is text only; the store knows the rest.
        failures = [store._channel.failure() for store in list(self._stores)]
        return any(failure is not None and failure.restartable for failure in failures)

    # -- uncaught exceptions --------------------------------------------------------------------
    def _uncaught(self, kind, error, trace):
        self._next_hook(kind, error, trace)
        cause = _collective_error_in(error)
        if cause is not None:
            self._exit_with_code_of(cause)
        self.abort(f"it ended with an uncaught {describe(error)}", list(self._stores))

    def _uncaught_in_thread(self, arguments):
        self._next_thread_hook(arguments)
        if arguments.exc_value is None:
            return
        thread = arguments.thread.ident if arguments.thread is not None else None
        used_there = [store for store in list(self._stores) if store._thread == thread]
        self.abort(f"its thread ended with an uncaught {describe(arguments.exc_value)}", used_there)

    def abort(self, reason, stores=None):
        """Gives up: every call of every worker fails, and says why."""
        for store in list(self._stores) if stores is None else stores:
            if store._channel.failure() is None:
                store._channel.abort(reason)

    # -- fork -----------------------------------------------------------------------------------
    def _before_fork(self):
        # MXNet waits for all operations before a fork, and ends the process where one has failed and
        # nobody has read the error. So it is read here, and kept for the store's next call.
        for store in list(self._stores):
            channel = store._channel
            while not channel.idle(_SLICE_MS):
                pass
            if channel.handed_over_errors():
                try:
                    mx.nd.waitall()
                except mx.base.MXNetError as error:
                    channel.raise_at_next_call(error)

    def _in_child(self):
        for store in list(self._stores):
            store._channel.mark_dead(
                f"the store ({store.type}, rank {store.rank}) belongs to the parent process {self._pid}: "
                "a forked child cannot use it")
        # Stores that the child makes itself are its own.
        self._stores.clear()
        self._pid = os.getpid()


@functools.lru_cache(maxsize=None)
def _lifecycle():
    return Lifecycle()


def watch(store):
    """Takes care of the store's end."""
    _lifecycle().add(store)


def collected(store):
    """The store is garbage: leave the group, unless this is the very end."""
    channel = getattr(store, "_channel", None)  # none where making it failed
    if channel is not None and not sys.is_finalizing():
        channel.close(_SLICE_MS)
        channel.free()


def abort(reason):
    """Gives up on all stores of this process."""
    _lifecycle().abort(reason)


def describe(error):
    lines = str(error).strip().split("\n")
    # MXNet's errors begin with a trace of their own.
    text = lines[-1 if lines[0].startswith("Traceback") else 0].strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _collective_error_in(error):
    """The exception itself or what it was raised from, if that is a CollectiveError."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, _errors.CollectiveError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
