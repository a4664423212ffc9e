"""Trains on handwritten digits, saves after every epoch, and goes on from there when started again.

    pushpull run -n 2 -- python examples/checkpoint_resume.py --checkpoint /tmp/digits

When a worker is lost, the others end with exit code 75, which means "start me again": the launcher does with
``--restarts``, and so does a Kubernetes Job. Try it with ``--fail-in-epoch 3``: the last worker dies there the
first time. Worker 0 alone reads and writes the checkpoint; what it has read, it broadcasts.
"""

import argparse
import os

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import pushpull.mxnet as pp
from gluon_digits import load_data, make_network, share_of, test_accuracy


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--checkpoint", metavar="FOLDER", required=True,
                        help="where worker 0 saves and looks for what it has saved")
    parser.add_argument("--epochs", type=int, default=8, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=64,
                        help="of all workers together (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.05, help="default: %(default)s")
    parser.add_argument("--fail-in-epoch", type=int, metavar="N",
                        help="the last worker dies in this epoch, unless it started from a checkpoint")
    return parser.parse_args()


class Checkpoint:
    """Parameters, the optimizer's states and the number of finished epochs, in a folder."""

    def __init__(self, folder, network, trainer):
        self._folder = folder
        self._network = network
        self._trainer = trainer
        os.makedirs(folder, exist_ok=True)

    def _path(self, epoch, what):
        return os.path.join(self._folder, f"epoch-{epoch}.{what}")

    @property
    def _newest(self):
        return os.path.join(self._folder, "newest")

    def save(self, epoch):
        self._network.save_parameters(self._path(epoch, "params"))
        self._trainer.save_states(self._path(epoch, "states"))
        # The name of the newest one changes at once, and only when that is complete.
        with open(self._newest + ".new", "w") as newest:
            newest.write(str(epoch))
        os.replace(self._newest + ".new", self._newest)
        for what in ("params", "states"):
            if epoch > 1:
                os.remove(self._path(epoch - 1, what))

    def load(self):
        """Gives the number of finished epochs, 0 where nothing was saved."""
        if not os.path.exists(self._newest):
            return 0
        with open(self._newest) as newest:
            epoch = int(newest.read())
        self._network.load_parameters(self._path(epoch, "params"))
        self._trainer.load_states(self._path(epoch, "states"))
        return epoch


def train_epoch(epoch, network, trainer, images, labels, arguments):
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    # The same order on every worker, and the same again after a restart.
    order = np.random.RandomState(epoch).permutation(len(labels))
    for start in range(0, len(labels) - arguments.batch_size + 1, arguments.batch_size):
        mine = share_of(order[start:start + arguments.batch_size], pp.kvstore())
        with autograd.record():
            loss = loss_of(network(mx.nd.array(images[mine])), mx.nd.array(labels[mine]))
        loss.backward()
        trainer.step(len(mine))


def main():
    arguments = parse_arguments()
    pp.init()
    mx.random.seed(1 + pp.rank())
    network = make_network()
    trainer = pp.DistributedTrainer(network.collect_params(), "sgd",
                                    {"learning_rate": arguments.learning_rate, "momentum": 0.9})
    # Before anything is loaded: Trainer gives all workers the parameters of worker 0 once.
    pp.broadcast_parameters(network.collect_params())
    checkpoint = None
    finished = 0
    if pp.rank() == 0:
        checkpoint = Checkpoint(arguments.checkpoint, network, trainer)
        finished = checkpoint.load()
    finished = pp.broadcast_object(finished)
    pp.broadcast_trainer(trainer)
    if pp.rank() == 0 and finished:
        print(f"going on after epoch {finished}", flush=True)

    images, labels, test_images, test_labels = load_data()
    for epoch in range(finished + 1, arguments.epochs + 1):
        if epoch == arguments.fail_in_epoch and not finished and pp.rank() == pp.size() - 1:
            os._exit(1)
        train_epoch(epoch, network, trainer, images, labels, arguments)
        if checkpoint:
            checkpoint.save(epoch)
        pp.barrier()  # nobody is ahead of what is saved by more than an epoch

    accuracy = test_accuracy(network, pp.kvstore(), test_images, test_labels)
    pp.check_parameters(network.collect_params(), "after training")
    if pp.rank() == 0:
        print(f"test accuracy: {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
