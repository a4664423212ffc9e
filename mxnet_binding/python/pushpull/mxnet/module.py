"""Module.fit on a collective store.

Module hands its parameters to the store by ``init`` when the store does not update them, and ``init`` says
nothing about the copies on the devices. For a collective store they are broadcast instead, so that
workers that started differently train the same model. Other stores see no change.
"""

import functools

import mxnet as mx
from mxnet import model as _model

from pushpull.mxnet.store import CollectiveStore


def _initialize(original):
    @functools.wraps(original)
    def initialize(kvstore, param_arrays, arg_params, param_names, update_on_kvstore):
        if not isinstance(kvstore, CollectiveStore):
            return original(kvstore, param_arrays, arg_params, param_names, update_on_kvstore)
        for index, on_devices in enumerate(param_arrays):
            name = param_names[index]
            kvstore.broadcast(name, arg_params[name], out=[*on_devices, arg_params[name]],
                              priority=-index)
        return None

    return initialize


def _init_optimizer(original):
    @functools.wraps(original)
    def init_optimizer(self, *args, **kwargs):
        before = self._kvstore
        original(self, *args, **kwargs)
        store = self._kvstore
        if store is before or not isinstance(store, CollectiveStore):
            return
        # Running averages and the like: MXNet itself never sends them.
        for name, on_devices in zip(self._aux_names, self._exec_group.aux_arrays):
            kept = self._aux_params[name]
            store.broadcast(f"aux:{name}", kept, out=[*on_devices, kept])

    return init_optimizer


def install():
    """Replaces Module's initialisation; once."""
    if hasattr(_model._initialize_kvstore, "__wrapped__"):
        return
    replacement = _initialize(_model._initialize_kvstore)
    _model._initialize_kvstore = replacement
    if hasattr(mx, "module"):  # gone in MXNet 2
        mx.module.module._initialize_kvstore = replacement
        mx.module.Module.init_optimizer = _init_optimizer(mx.module.Module.init_optimizer)
