"""Trains a small convolutional network on handwritten digits, on as many workers as were started.

    pushpull run -n 2 -- python examples/gluon_digits.py
    MXNET_KVSTORE_BACKEND=mpi pushpull run -n 4 -- python examples/gluon_digits.py

The data are the 1,797 scanned digits that scikit-learn ships. Every worker takes its share of each global
batch; the sum of their gradients is what one process would compute on the whole batch, so the result does
not depend on the number of workers.
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from sklearn.datasets import load_digits

import pushpull.mxnet as pp  # makes the store types known to mx.kv.create


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kvstore", default="dist_sync_pushpull", help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=12, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=64,
                        help="of all workers together (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.05, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--checkpoint", metavar="FOLDER", default=os.environ.get("PUSHPULL_CHECKPOINT"),
                        help="rank 0 writes a checkpoint there after each epoch; where one is, training "
                             "goes on from it (default: $PUSHPULL_CHECKPOINT)")
    parser.add_argument("--save", metavar="FILE.npz",
                        help="write the trained parameters; {rank} stands for the worker's rank")
    return parser.parse_args()


def load_data():
    """Training images and labels, test images and labels: the same split on every worker."""
    digits = load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    images = (digits.images[order, np.newaxis] / 16.0).astype("float32")
    labels = digits.target[order].astype("float32")
    test = len(labels) // 5
    return images[test:], labels[test:], images[:test], labels[:test]


def make_network():
    # Input sizes are given, so that the parameters exist before the first batch.
    network = gluon.nn.HybridSequential()
    network.add(gluon.nn.Conv2D(16, 3, padding=1, activation="relu", in_channels=1),
                gluon.nn.Conv2D(32, 3, padding=1, activation="relu", in_channels=16),
                gluon.nn.MaxPool2D(),
                gluon.nn.Dense(64, activation="relu", in_units=32 * 4 * 4),
                gluon.nn.Dense(10, in_units=64))
    network.initialize(mx.init.Xavier())
    network.hybridize()
    return network


def share_of(indices, store):
    """This worker's part of a global batch, or of the test set."""
    return indices[store.rank::store.num_workers]


def batches(count, arguments):
    """Global batches as (epoch, indices): the same on every worker."""
    shuffle = np.random.RandomState(arguments.seed)
    steps = 0
    for epoch in range(arguments.epochs):
        order = shuffle.permutation(count)
        for start in range(0, count - arguments.batch_size + 1, arguments.batch_size):
            if arguments.steps is not None and steps == arguments.steps:
                return
            steps += 1
            yield epoch, order[start:start + arguments.batch_size]


class Progress:
    """A bar on the terminal, or a line per epoch where the output is no terminal; on rank 0 only."""

    WIDTH = 30

    def __init__(self, total, epochs, enabled):
        self.total, self.epochs, self.enabled = total, epochs, enabled
        self.done = 0
        self.start = time.monotonic()
        self.on_terminal = sys.stderr.isatty()

    def step(self, epoch, epoch_ends, loss):
        self.done += 1
        if not self.enabled or not (self.on_terminal or epoch_ends):
            return
        full = self.WIDTH * self.done // self.total
        bar = "#" * full + "-" * (self.WIDTH - full)
        seconds = time.monotonic() - self.start
        line = (f"epoch {epoch + 1:2d}/{self.epochs} [{bar}] {self.done}/{self.total} steps, "
                f"loss {loss():.3f}, {seconds:.0f} s")
        if self.on_terminal:
            line = f"\r{line}" + ("\n" if self.done == self.total else "")
        print(line, end="" if self.on_terminal else "\n", file=sys.stderr, flush=True)


class Checkpoints:
    """Rank 0's files: parameters, the optimizer's state, and the number of steps behind them.

    A checkpoint is a folder that gets its name when it is complete, so that a process that is killed leaves
    the one before. Only rank 0 reads; the others get everything from it by broadcast.
    """

    def __init__(self, folder, store):
        self.folder = pathlib.Path(folder) if folder else None
        self.store = store

    def save(self, step, network, trainer):
        if self.folder is None or self.store.rank != 0:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        new = pathlib.Path(tempfile.mkdtemp(dir=self.folder, prefix="new-"))
        network.save_parameters(str(new / "parameters"))
        trainer.save_states(str(new / "optimizer"))
        new.rename(self.folder / f"step-{step:08d}")
        for old in self._complete()[:-2]:
            for file in old.iterdir():
                file.unlink()
            old.rmdir()

    def resume(self, network, trainer):
        """-> the step to go on with, on every rank."""
        if self.folder is None:
            return 0
        pp.init(self.store)
        step, state = 0, b""
        if self.store.rank == 0 and self._complete():
            newest = self._complete()[-1]
            step, state = int(newest.name[5:]), (newest / "optimizer").read_bytes()
            network.load_parameters(str(newest / "parameters"))
        step, state = pp.broadcast_object((step, state))
        if step > 0:
            pp.broadcast_parameters(network.collect_params())
            with tempfile.NamedTemporaryFile() as file:
                pathlib.Path(file.name).write_bytes(state)
                trainer.load_states(file.name)
        return step

    def _complete(self):
        return sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []


def train(network, store, images, labels, arguments):
    trainer = gluon.Trainer(network.collect_params(), "sgd",
                            {"learning_rate": arguments.learning_rate, "momentum": 0.9}, kvstore=store)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    plan = list(batches(len(labels), arguments))
    progress = Progress(len(plan), arguments.epochs, enabled=store.rank == 0)
    checkpoints = Checkpoints(arguments.checkpoint, store)
    first = progress.done = checkpoints.resume(network, trainer)
    if first and store.rank == 0:
        print(f"going on after step {first}", flush=True)
    for step, (epoch, batch) in enumerate(plan[first:], first):
        mine = share_of(batch, store)
        with autograd.record():
            loss = loss_of(network(mx.nd.array(images[mine])), mx.nd.array(labels[mine]))
        loss.backward()
        # Gradients are summed over all workers, so they are scaled by the size of the global batch.
        trainer.step(len(batch))
        epoch_ends = step + 1 == len(plan) or plan[step + 1][0] != epoch
        progress.step(epoch, epoch_ends, lambda current=loss: current.mean().asscalar())
        if epoch_ends:
            checkpoints.save(step + 1, network, trainer)


def test_accuracy(network, store, images, labels):
    """Every worker counts its share of the test set, the store adds up."""
    mine = share_of(np.arange(len(labels)), store)
    guesses = network(mx.nd.array(images[mine])).argmax(axis=1).asnumpy()
    right = mx.nd.array([np.sum(guesses == labels[mine])])
    store.pushpull("test:right", right)
    return right.asscalar() / len(labels)


def count_differences(network, store):
    """On how many workers a parameter is not, bit for bit, what it is on worker 0; summed over all."""
    different = 0
    for name, parameter in network.collect_params().items():
        own = parameter.data()
        theirs = own.copy()
        store.broadcast(f"check:{name}", theirs, root_rank=0)
        different += own.asnumpy().tobytes() != theirs.asnumpy().tobytes()
    total = mx.nd.array([different])
    store.pushpull("check:differences", total)
    return int(total.asscalar())


def main():
    arguments = parse_arguments()
    store = mx.kv.create(arguments.kvstore)
    # Different on every worker, as it would be without a seed: the broadcast makes them equal.
    mx.random.seed(arguments.seed + store.rank)
    network = make_network()
    for name, parameter in network.collect_params().items():
        store.broadcast(name, parameter.data(), root_rank=0)

    train_images, train_labels, test_images, test_labels = load_data()
    if store.rank == 0:
        print(f"{store.num_workers} workers, store {store.type}, {len(train_labels)} images to learn from",
              flush=True)
    train(network, store, train_images, train_labels, arguments)
    accuracy = test_accuracy(network, store, test_images, test_labels)
    differences = count_differences(network, store)
    if arguments.save:
        values = {str(i): parameter.data().asnumpy()
                  for i, parameter in enumerate(network.collect_params().values())}
        np.savez(arguments.save.format(rank=store.rank), **values)
    if store.rank == 0:
        if differences == 0:
            print(f"parameters are identical on all {store.num_workers} workers")
        print(f"test accuracy: {accuracy:.3f}", flush=True)
    if differences:
        sys.exit(f"rank {store.rank}: {differences} parameters differ from those of worker 0")


if __name__ == "__main__":
    main()
