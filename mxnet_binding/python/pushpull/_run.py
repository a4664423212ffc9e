"""Runs a script that knows nothing of pushpull, with the store types registered."""

import argparse
import os
import runpy
import sys


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m pushpull",
        description="Registers pushpull's store types with MXNet, then runs the script as if python "
                    "had been called with it.")
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="print the version and exit")
    parser.add_argument("--as", dest="names", metavar="NAME[,NAME]", action="append", default=[],
                        help="use a pushpull store where the script asks for the store NAME (dist_sync, "
                             "dist_device_sync, device, ...), or imports NAME.mxnet (horovod, byteps); "
                             "may be repeated")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module name")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file, or with -m a module")
    parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER)
    return parser


class _ShowVersion(argparse.Action):
    """Looks it up only where it is asked for: that loads the library."""

    def __call__(self, parser, *_):
        from pushpull import _capi
        print(f"pushpull {_capi.version()}")
        parser.exit()


def forget_parameter_server(environment):
    """Removes what would make `import mxnet` start a parameter server; returns the names."""
    names = sorted(name for name in environment
                   if name.startswith("DMLC_") and not name.startswith("DMLC_LOG_"))
    for name in names:
        del environment[name]
    return names


def main():
    options = _parser().parse_args()
    if not options.module and not os.path.exists(options.script):
        _parser().error(f"{options.script} does not exist")
    removed = forget_parameter_server(os.environ)
    if removed:
        print(f"pushpull: ignoring {', '.join(removed)}: they belong to MXNet's parameter server, which a "
              "collective store does not use", file=sys.stderr)
    from pushpull.mxnet import aliases
    import pushpull
    aliases.refuse_parameter_server()
    try:
        for name in ",".join(options.names).split(","):
            if name.strip():
                aliases.register_as(name.strip())
    except pushpull.UnsupportedError as error:
        _parser().error(f"--as: {error}")
    _run(options)


def _run(options):
    from pushpull.mxnet import lifecycle
    try:
        if options.module:
            sys.argv = [options.script, *options.arguments]
            runpy.run_module(options.script, run_name="__main__", alter_sys=True)
        else:
            _run_file(options.script, options.arguments)
    except SystemExit as end:
        if end.code not in (None, 0):
            lifecycle.abort(f"it ended with exit code {end.code}")
        raise


def _run_file(script, arguments):
    """In the real __main__ module, so that pickling and multiprocessing find the script's names."""
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    with open(script, "rb") as source:
        code = compile(source.read(), script, "exec")
    names = sys.modules["__main__"].__dict__
    builtins = names["__builtins__"]
    names.clear()
    names.update(__name__="__main__", __file__=script, __builtins__=builtins, __doc__=None,
                 __package__=None, __spec__=None, __loader__=None, __cached__=None)
    exec(code, names)
