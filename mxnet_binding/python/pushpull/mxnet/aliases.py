"""Scripts that were written for something else: our store under the names they ask for."""

import functools
import importlib
import sys
import types

import mxnet as mx
from mxnet import gluon
from mxnet import model as _model
from mxnet.kvstore import KVStoreBase

from pushpull import _capi, _errors

# Packages of which a script may import the part for MXNet.
_PACKAGES = ("horovod", "byteps")

# MXNet's own distributed stores; each needs a parameter server.
_SYNCHRONOUS = ("dist", "dist_sync", "dist_device_sync", "dist_sync_device")
_ASYNCHRONOUS = ("dist_async", "dist_device_async", "dist_async_device")


def register_as(name):
    """Lets mx.kv.create(name), and whatever else takes the name of a store, make a dist_sync_pushpull store.
    With 'horovod' or 'byteps', ``import horovod.mxnet`` also gets our helpers under their names there."""
    lowered = name.lower()
    if "async" in lowered:
        raise _errors.make(_capi.UNSUPPORTED, _not_asynchronous(name))
    KVStoreBase.kv_registry[lowered] = KVStoreBase.kv_registry["dist_sync_pushpull"]
    if "dist" not in lowered:
        _always_create(lowered)
    if lowered in _PACKAGES:
        _stand_for_package(lowered)


def _not_asynchronous(name):
    return (f"{name} cannot be replaced: a collective store is synchronous, all workers take every step "
            "together")


def refuse_parameter_server():
    """Says what to do where a script asks for a store of MXNet's parameter server, which is not there."""
    for name in _ASYNCHRONOUS:
        KVStoreBase.kv_registry[name] = functools.partial(_refuse, _not_asynchronous(name))
    for name in _SYNCHRONOUS:
        KVStoreBase.kv_registry[name] = functools.partial(
            _refuse, f"the script asks for MXNet's parameter server (kvstore {name}): run it by "
            f"python -m pushpull --as {name}, and a collective store takes its place")


def _refuse(sentence):
    raise _errors.make(_capi.UNSUPPORTED, sentence)


def _always_create(name):
    """MXNet ignores stores without 'dist' in their name where there is one device."""
    original = _model._create_kvstore
    if name in getattr(original, "names", ()):
        return

    @functools.wraps(original)
    def create(kvstore, num_device, arg_params):
        if isinstance(kvstore, str) and kvstore.lower() == name:
            kvstore = mx.kv.create(name)
        return original(kvstore, num_device, arg_params)

    create.names = (name, *getattr(original, "names", ()))
    _model._create_kvstore = create
    gluon.trainer._create_kvstore = create
    if hasattr(mx, "module"):  # gone in MXNet 2
        mx.module.module._create_kvstore = create


def _stand_for_package(name):
    ours = importlib.import_module(f"pushpull.mxnet.{name}")
    package = types.ModuleType(name, ours.__doc__)
    package.__path__ = []
    package.__version__ = f"pushpull {_capi.version()}"
    package.mxnet = ours
    sys.modules[name] = package
    sys.modules[f"{name}.mxnet"] = ours
