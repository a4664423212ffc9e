"""The exceptions. See pushpull.CollectiveError and pushpull.UnsupportedError."""

import mxnet as mx

from pushpull import _capi

_PREFIX = "CollectiveError: "


class CollectiveError(mx.base.MXNetError):
    """An exchange, or the whole group of workers, failed. The sentence says what, where, and what to do.

    ``code`` is one of 'InvalidArgument', 'Unsupported', 'Unavailable', 'Mismatch', 'Timeout', 'PeerLost',
    'Aborted', or None where MXNet raised it for an operation that failed in the background.
    ``restartable``: starting the whole job again helps; an uncaught one ends the process with code 75.
    """

    # How many were ever raised: tells at exit whether a failure has been seen by anybody.
    raised = 0

    def __init__(self, message="", code=None, restartable=False):
        # MXNet recognises the class by this prefix, and leaves it in the text.
        if message.startswith(_PREFIX):
            message = message[len(_PREFIX):]
        super().__init__(message)
        self.code = code
        self.restartable = restartable
        CollectiveError.raised += 1


class UnsupportedError(CollectiveError, NotImplementedError):
    """The call is not part of what a collective store offers; the sentence says what to use instead."""


for _class in (CollectiveError, UnsupportedError):
    _class.__module__ = "pushpull"
# From here on MXNet raises the class for engine operations that failed with it.
mx.error.register(CollectiveError)


def make(code, message, restartable=False):
    """The exception for a code of core/c_api.h."""
    kind = UnsupportedError if code == _capi.UNSUPPORTED else CollectiveError
    return kind(message, _capi.NAMES.get(code), restartable)


def invalid(message):
    return make(_capi.INVALID_ARGUMENT, message)


def from_core(code):
    """The exception for the error that the last call of libpushpull left on this thread."""
    library = _capi.core()
    return make(code, library.pushpull_last_error().decode(errors="replace"),
                bool(library.pushpull_last_error_restartable()))


def from_bridge(code):
    """The same for libpushpull_mxnet."""
    library = _capi.bridge()
    return make(code, library.pushpull_bridge_last_error().decode(errors="replace"),
                bool(library.pushpull_bridge_last_error_restartable()))
