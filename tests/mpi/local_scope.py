"""As Python opens libraries: ours and the MPI module, each in a scope of its own, under mpirun.

local_scope.py DIRECTORY_OF_THE_LIBRARIES [--mxnet]

Open MPI's plug-ins miss symbols where libmpi was opened that way, unless the module sees to it.
"""

import ctypes
import os
import pathlib
import sys


def main():
    libraries = pathlib.Path(sys.argv[1])
    if "--mxnet" in sys.argv:
        import mxnet  # noqa: F401  brings its own libraries
    core = ctypes.CDLL(str(libraries / "libpushpull.so"), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    core.pushpull_last_error.restype = ctypes.c_char_p
    store = ctypes.c_void_p()
    flags = (ctypes.c_char_p * 1)(None)
    if core.pushpull_create(b"dist_sync_mpi", flags, ctypes.byref(store)) != 0:
        sys.exit(f"no store: {core.pushpull_last_error().decode()}")
    rank, size = core.pushpull_rank(store), core.pushpull_size(store)
    expected = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    if (rank, size) != expected:
        sys.exit(f"rank {rank} of {size} instead of {expected}")
    if core.pushpull_close(store) != 0:
        sys.exit(f"not closed: {core.pushpull_last_error().decode()}")
    core.pushpull_free(store)
    print(f"rank {rank} of {size} has used MPI", flush=True)


main()
