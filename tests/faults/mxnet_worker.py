"""As worker.cc, through MXNet: a rank whose engine exchanges until a call raises.

    mxnet_worker.py [NAME=VALUE]…       seed, bytes, pause_us, steps, children (DataLoader workers)
"""

import json
import os
import random
import signal
import sys
import time

import mxnet as mx
import numpy as np

import pushpull.mxnet

_VALUES = 17


class Events:
    def __init__(self):
        folder = os.environ["FAULTS_EVENTS"]
        self._fd = os.open(f"{folder}/{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.rank = int(os.environ.get("PUSHPULL_RANK") or os.environ.get("OMPI_COMM_WORLD_RANK", -1))

    def say(self, event, **more):
        line = {**more, "event": event, "rank": self.rank, "pid": os.getpid(), "at": time.monotonic()}
        os.write(self._fd, (json.dumps(line) + "\n").encode())


def culprit(error):
    """The rank that an error names first."""
    words = str(error).replace(",", " ").split()
    for before, word in zip(words, words[1:]):
        if before.endswith("rank") and word.isdigit():
            return int(word)
    return -1


def make_values(count, salt, step):
    return (np.arange(count) + salt + step * 13) % _VALUES + 1


def loader(children):
    """Live DataLoader workers, in the middle of an epoch."""
    from mxnet.gluon.data import ArrayDataset, DataLoader
    data = ArrayDataset(np.arange(4096, dtype="float32"))
    iterator = iter(DataLoader(data, batch_size=4, num_workers=children))
    next(iterator)
    return iterator


def say_error(events, kv, error, step, first_at):
    again = []
    for call in (lambda: kv.pushpull("again", mx.nd.ones((2,))),
                 lambda: kv.broadcast("again", mx.nd.ones((2,)), 0), kv.barrier):
        try:
            call()
            mx.nd.waitall()
            again.append("success")
        except pushpull.CollectiveError as later:
            again.append(str(later))
    code = "PeerLost" if " died" in str(error) or "lost" in str(error) else type(error).__name__
    events.say("error", code=code, culprit=culprit(error), message=str(error), messages={},
               group=str(error), again=again, step=step, first_at=first_at)


def train(kv, events, options):
    chance = random.Random(options["seed"])
    counts = [options["bytes"] // 4, 0, 1] + [chance.randrange(options["bytes"] // 16 + 1) + 1
                                              for _ in range(6)]
    counts = [count for count in counts if count > 0]
    salts = [chance.randrange(1000) for _ in counts]
    factor = kv.num_workers * (kv.num_workers + 1) // 2
    kept = loader(options["children"]) if options.get("children") else None
    for step in range(options.get("steps", 10**9)):
        time.sleep(options["pause_us"] / 1e6)
        if kept is not None and step % 4 == 0:
            next(kept, None)
        arrays = [mx.nd.array(make_values(count, salt, step) * (kv.rank + 1), dtype="float32")
                  for count, salt in zip(counts, salts)]
        try:
            for key, array in enumerate(arrays):
                kv.pushpull(key, array, priority=-key)
            mx.nd.waitall()
        except pushpull.CollectiveError as error:
            say_error(events, kv, error, step, time.monotonic())
            return error
        for key, (array, count, salt) in enumerate(zip(arrays, counts, salts)):
            wrong = np.flatnonzero(array.asnumpy() != make_values(count, salt, step) * factor)
            if wrong.size:
                events.say("wrong", key=key, step=step, place=int(wrong[0]), of=count)
        if step < 3 or step % 50 == 0:
            events.say("step", step=step)
    return None


def main():
    options = {name: int(value) for name, _, value in (word.partition("=") for word in sys.argv[1:])}
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    events = Events()
    events.say("start")
    try:
        kv = mx.kv.create("dist_sync_pushpull")
    except pushpull.CollectiveError as error:
        events.say("create_failed", code="", culprit=culprit(error), message=str(error))
        raise
    events.rank = kv.rank
    events.say("created")
    error = train(kv, events, options)
    if error is not None:
        raise error


if __name__ == "__main__":
    main()
