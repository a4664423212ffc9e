"""Trains a small convolutional network on handwritten digits by Module.fit, on as many workers as were started.

    pushpull run -n 2 -- python examples/module_digits.py

Nothing but the store's name differs from a script for one process: fit() gives all workers the parameters of
worker 0, sums the gradients, and divides by the number of workers.
"""

import argparse
import logging

import mxnet as mx

import pushpull.mxnet
from gluon_digits import load_data


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kvstore", default="dist_sync_pushpull", help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=10, help="default: %(default)s")
    parser.add_argument("--batch-size", type=int, default=64,
                        help="of all workers together (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=0.05, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    return parser.parse_args()


def make_symbol():
    net = mx.sym.Variable("data")
    for i, filters in enumerate((16, 32)):
        net = mx.sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=filters, name=f"conv{i}")
        net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.FullyConnected(net, num_hidden=64, name="hidden")
    net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.FullyConnected(net, num_hidden=10, name="out")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def main():
    arguments = parse_arguments()
    logging.basicConfig(level=logging.WARNING)
    store = mx.kv.create(arguments.kvstore)
    pushpull.mxnet.init(store)  # for the helpers below
    mx.random.seed(arguments.seed + store.rank)  # different on every worker: fit() makes them equal

    images, labels, test_images, test_labels = load_data()
    # Every worker gets as many samples: fit() has as many steps on each.
    whole = len(labels) // store.num_workers * store.num_workers
    mine = slice(store.rank, whole, store.num_workers)
    batches = mx.io.NDArrayIter(images[mine], labels[mine], arguments.batch_size // store.num_workers,
                                shuffle=True, last_batch_handle="discard")
    tests = mx.io.NDArrayIter(test_images, test_labels, batch_size=1 + len(test_labels) // 8)

    module = mx.mod.Module(make_symbol())
    module.fit(batches, num_epoch=arguments.epochs, kvstore=store, initializer=mx.init.Xavier(),
               optimizer="sgd",
               optimizer_params={"learning_rate": arguments.learning_rate, "momentum": 0.9})

    parameters, _ = module.get_params()
    pushpull.mxnet.check_parameters(parameters, "after training")  # raises where workers differ
    accuracy = dict(module.score(tests, "acc"))["accuracy"]
    if store.rank == 0:
        print(f"parameters are identical on all {store.num_workers} workers")
        print(f"test accuracy: {accuracy:.3f}", flush=True)


if __name__ == "__main__":
    main()
