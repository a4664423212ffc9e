"""The C libraries: libpushpull (core/c_api.h) and libpushpull_mxnet (mxnet_binding/bridge/bridge_api.h).

They lie in the package's ``_lib`` folder, or where PUSHPULL_LIBRARY_DIR points (a build tree)."""

import ctypes
import functools
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_void_p

# core/c_api.h
INVALID_ARGUMENT = 1
UNSUPPORTED = 2
MISMATCH = 4
NAMES = {1: "InvalidArgument", 2: "Unsupported", 3: "Unavailable", 4: "Mismatch", 5: "Timeout",
         6: "PeerLost", 7: "Aborted", -1: "Misuse"}
_API_VERSION = 1

# bridge_api.h
NOT_ON_HOST = 100
PENDING = 101

_CORE = {
    "pushpull_c_api_version": (c_int, []),
    "pushpull_version": (c_char_p, []),
    "pushpull_last_error": (c_char_p, []),
    "pushpull_last_error_restartable": (c_int, []),
    "pushpull_create": (c_int, [c_char_p, POINTER(c_char_p), POINTER(c_void_p)]),
    "pushpull_close": (c_int, [c_void_p]),
    "pushpull_free": (None, [c_void_p]),
    "pushpull_type": (c_char_p, [c_void_p]),
    "pushpull_rank": (c_int, [c_void_p]),
    "pushpull_size": (c_int, [c_void_p]),
    "pushpull_local_rank": (c_int, [c_void_p]),
    "pushpull_local_size": (c_int, [c_void_p]),
    "pushpull_abort": (c_int, [c_void_p, c_char_p]),
    "pushpull_failure": (c_int, [c_void_p]),
    "pushpull_unsupported": (c_int, [c_void_p, c_char_p]),
    "pushpull_dump": (c_char_p, [c_void_p]),
}

_BRIDGE = {
    "pushpull_bridge_last_error": (c_char_p, []),
    "pushpull_bridge_last_error_restartable": (c_int, []),
    "pushpull_bridge_open": (c_int, [c_char_p, POINTER(c_void_p)]),
    "pushpull_bridge_verify": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "pushpull_bridge_make_room": (c_int, [c_void_p, POINTER(c_void_p), c_int]),
    "pushpull_bridge_attach": (c_int, [c_void_p, c_void_p, c_int, POINTER(c_void_p)]),
    "pushpull_bridge_detach": (None, [c_void_p]),
    "pushpull_bridge_pushpull": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p, c_int, c_double,
                                         c_double]),
    "pushpull_bridge_broadcast": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p, c_int, c_int]),
    "pushpull_bridge_check": (c_int, [c_void_p, c_char_p, c_void_p]),
    "pushpull_bridge_idle": (c_int, [c_void_p, c_int]),
    "pushpull_bridge_handed_over_errors": (c_int, [c_void_p]),
    "pushpull_bridge_barrier": (c_int, [c_void_p, POINTER(c_void_p)]),
    "pushpull_bridge_group_wait": (c_int, [c_void_p, c_int]),
    "pushpull_bridge_group_wait_free": (None, [c_void_p]),
    "pushpull_bridge_join": (c_int, [c_void_p, POINTER(c_void_p)]),
    "pushpull_bridge_group_wait_last": (c_int, [c_void_p]),
    "pushpull_bridge_exit_with": (None, [c_int]),
}


def directory():
    """Where the libraries are expected."""
    configured = os.environ.get("PUSHPULL_LIBRARY_DIR")
    return configured or os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lib")


def _load(name, functions):
    path = os.path.join(directory(), name)
    if not os.path.exists(path):
        raise ImportError(
            f"{path} does not exist: install the package pushpull, or let PUSHPULL_LIBRARY_DIR point to "
            "the lib folder of a build")
    library = ctypes.CDLL(path)
    for function, (result, arguments) in functions.items():
        pointer = getattr(library, function)
        pointer.restype = result
        pointer.argtypes = arguments
    return library


@functools.lru_cache(maxsize=None)
def core():
    """libpushpull."""
    library = _load("libpushpull.so", _CORE)
    found = library.pushpull_c_api_version()
    if found != _API_VERSION:
        raise ImportError(
            f"libpushpull.so in {directory()} has C API version {found}, this package needs "
            f"{_API_VERSION}: both must come from the same pushpull")
    return library


@functools.lru_cache(maxsize=None)
def bridge():
    """libpushpull_mxnet."""
    core()
    return _load("libpushpull_mxnet.so", _BRIDGE)


def version():
    return core().pushpull_version().decode()
