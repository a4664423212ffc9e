"""Makes room in the engine's list of errors, over and over from an empty list: ``room_for_errors.py ROUNDS``.

MXNet reads and extends that list on several threads without a lock, so making the room must not do both
at a time: a mistake corrupts the heap, in one of some thousand rounds of few errors."""

import ctypes
import sys

import mxnet as mx

from pushpull.mxnet.engine import Bridge

WORDS = 64  # of the engine, in which the list is looked for
REFERENCE = 16  # bytes of a std::shared_ptr


def main(rounds):
    bridge = Bridge.open()
    words = engine_words()
    place = next(i for i in range(WORDS - 2) if is_list(*words[i:i + 3]))
    begin, end, limit = words[place:place + 3]
    room = (limit - end) // REFERENCE
    assert room > 900, f"{room} more errors fit"
    print(f"room for {room} more errors", flush=True)
    for _ in range(rounds):
        words[place:place + 3] = [0, 0, 0]  # what it held is kept for ever
        bridge.make_room_for_errors()
        assert words[place + 1] - words[place] == end - begin
    print(f"{rounds} rounds", flush=True)


def is_list(begin, end, limit):
    """Of somewhat more than 1,000 errors, in memory that was doubled whenever it was full."""
    errors, places = (end - begin) / REFERENCE, (limit - begin) / REFERENCE
    return 1000 < errors < 1200 and places in (1024, 2048)


def engine_words():
    get = mx.base._LIB._ZN5mxnet6Engine3GetEv
    get.restype = ctypes.c_void_p
    return (ctypes.c_size_t * WORDS).from_address(get())


if __name__ == "__main__":
    main(int(sys.argv[1]))
