"""pushpull: a collective key-value store for data-parallel training in Apache MXNet.

``import pushpull.mxnet`` registers the store types with MXNet::

    import mxnet as mx
    import pushpull.mxnet

    kv = mx.kv.create("dist_sync_pushpull")

``python -m pushpull script.py args...`` does the same for a script that was not changed.
"""

__all__ = ["CollectiveError", "UnsupportedError", "__version__"]


def __getattr__(name):
    # The error classes derive from MXNet's, and `import mxnet` takes seconds; it must also not happen
    # before `python -m pushpull` has cleaned the environment. So they are made when first used.
    if name in ("CollectiveError", "UnsupportedError"):
        from pushpull import _errors
        return getattr(_errors, name)
    if name == "__version__":
        from pushpull import _capi
        return _capi.version()
    raise AttributeError(f"module 'pushpull' has no attribute {name!r}")
