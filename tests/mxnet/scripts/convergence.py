"""Trains the digits example in many ways, from the same weights on the same batches; rank 0 writes a line of JSON
for each: convergence.py RESULTS [--seeds 1,2,3] [--devices 1,2] [--epochs N] [--ways WAY:PRECISION,...]."""

import argparse
import json
import sys
import time

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

import harness  # noqa: F401  its folder's neighbour holds the example
import pushpull.mxnet as pp

sys.path.insert(0, __file__.rsplit("/tests/", maxsplit=1)[0] + "/examples")
import gluon_digits  # noqa: E402

BATCH = 64
COMPRESSION = {"fp32": pp.Compression.none, "fp16": pp.Compression.fp16, "bf16": pp.Compression.bf16,
               "amp": pp.Compression.none}
# AMP last: it changes MXNet's operators for the whole process. Plain Trainer and Module exchange gradients
# in the type they have, which MXNet's CPU kernels give in float32 alone.
WAYS = ("trainer:fp32,module:fp32,distributed:fp32,distributed:fp16,distributed:bf16,raw:fp32,raw:fp16,"
        "raw:bf16,trainer:amp,distributed:amp")


class Job:
    """One training: data, a network whose weights are those of rank 0, and who takes what of a batch."""

    def __init__(self, kv, seed, devices, epochs):
        self.kv = kv
        self.devices = [mx.cpu(i) for i in range(devices)]
        self.arguments = argparse.Namespace(seed=seed, epochs=epochs, batch_size=BATCH, steps=None)
        images, labels, self.test_images, self.test_labels = gluon_digits.load_data()
        self.images, self.labels = images, labels
        mx.random.seed(seed + 1000 * kv.rank)
        np.random.seed(seed + 1000 * kv.rank)
        self.network = gluon_digits.make_network()
        self.network.collect_params().reset_ctx(self.devices)
        pp.broadcast_parameters(self.network.collect_params())

    def optimizer(self):
        """Options of SGD. Small steps at the end, so that what is compared is not the last batches' luck."""
        steps = sum(1 for _ in gluon_digits.batches(len(self.labels), self.arguments))
        schedule = mx.lr_scheduler.MultiFactorScheduler([steps * 2 // 3], factor=0.1, base_lr=0.05)
        return {"learning_rate": 0.05, "momentum": 0.9, "lr_scheduler": schedule}

    def batches(self):
        """This worker's share of each global batch, one part per device."""
        for _, batch in gluon_digits.batches(len(self.labels), self.arguments):
            mine = gluon_digits.share_of(batch, self.kv)
            yield [(mx.nd.array(self.images[part], ctx=device), mx.nd.array(self.labels[part], ctx=device))
                   for part, device in zip(np.array_split(mine, len(self.devices)), self.devices)]

    def backward(self, parts, scaling=None):
        with autograd.record():
            losses = [gluon.loss.SoftmaxCrossEntropyLoss()(self.network(x), y) for x, y in parts]
            if scaling is not None:
                from mxnet.contrib import amp
                with amp.scale_loss(losses, scaling) as scaled:
                    autograd.backward(scaled)
        if scaling is None:
            autograd.backward(losses)

    def accuracy(self):
        guesses = self.network(mx.nd.array(self.test_images, ctx=self.devices[0])).argmax(axis=1).asnumpy()
        return float((guesses == self.test_labels).mean())


def train_with(trainer, job, precision, batch_size):
    scaling = None
    if precision == "amp":
        from mxnet.contrib import amp
        amp.init_trainer(trainer)
        scaling = trainer
    for parts in job.batches():
        job.backward(parts, scaling)
        trainer.step(batch_size)


def by_trainer(job, precision):
    train_with(gluon.Trainer(job.network.collect_params(), "sgd", job.optimizer(), kvstore=job.kv), job,
               precision, BATCH)


def by_distributed(job, precision):
    train_with(pp.DistributedTrainer(job.network.collect_params(), "sgd", job.optimizer(),
                                     compression=COMPRESSION[precision]), job, precision,
               BATCH / job.kv.num_workers)


def by_raw(job, precision):
    compression = COMPRESSION[precision]
    optimizer = mx.optimizer.SGD(rescale_grad=1 / BATCH, **job.optimizer())
    updaters = [mx.optimizer.get_updater(optimizer) for _ in job.devices]
    for parts in job.batches():
        job.backward(parts)
        for i, parameter in enumerate(job.network.collect_params().values()):
            wires = [compression.compress(grad) for grad in parameter.list_grad()]
            job.kv.pushpull(f"raw{i}", wires, priority=-i)
            for wire, grad in zip(wires, parameter.list_grad()):
                compression.decompress(wire, grad)
        for i, parameter in enumerate(job.network.collect_params().values()):
            for updater, weight, grad in zip(updaters, parameter.list_data(), parameter.list_grad()):
                updater(i, grad, weight)


class Batches(mx.io.DataIter):
    """The same batches for Module; its epochs are ours."""

    def __init__(self, job):
        super().__init__(batch_size=BATCH // job.kv.num_workers)
        self._all = list(job.batches())
        self._epoch = len(self._all) // job.arguments.epochs
        self._next = 0
        shape = (self.batch_size, *job.images.shape[1:])
        self.provide_data = [mx.io.DataDesc("data", shape)]
        self.provide_label = [mx.io.DataDesc("softmax_label", shape[:1])]

    def reset(self):
        pass

    def next(self):
        if self._next and self._next % self._epoch == 0:
            self._next, self._all = 0, self._all[self._epoch:]
            raise StopIteration
        parts = self._all[self._next]
        self._next += 1
        together = [mx.nd.concat(*(part[i].as_in_context(mx.cpu()) for part in parts), dim=0)
                    for i in range(2)]
        return mx.io.DataBatch([together[0]], [together[1]], pad=0)


def by_module(job, _):
    symbol = mx.sym.SoftmaxOutput(job.network(mx.sym.var("data")), name="softmax")
    parameters = job.network.collect_params()
    module = mx.mod.Module(symbol, context=job.devices)
    module.fit(Batches(job), num_epoch=job.arguments.epochs, kvstore=job.kv, optimizer="sgd",
               optimizer_params=job.optimizer(),
               arg_params={name: parameter.data(job.devices[0]).as_in_context(mx.cpu())
                           for name, parameter in parameters.items()})
    for name, value in module.get_params()[0].items():
        parameters[name].set_data(value)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("results")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--devices", default="1,2")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--ways", default=WAYS)
    options = parser.parse_args()
    kv = mx.kv.create("dist_sync_pushpull")
    pp.init(kv)
    with open(options.results.format(rank=kv.rank), "w") as results:
        for way, precision in (each.split(":") for each in options.ways.split(",")):
            if precision == "amp":
                from mxnet.contrib import amp
                amp.init(target_dtype="bfloat16")
            for devices in map(int, options.devices.split(",")):
                for seed in map(int, options.seeds.split(",")):
                    start = time.monotonic()
                    job = Job(kv, seed, devices, options.epochs)
                    globals()[f"by_{way}"](job, precision)
                    pp.check_parameters(job.network.collect_params(), f"after {way}, {precision}")
                    print(json.dumps({"way": way, "precision": precision, "devices": devices, "seed": seed,
                                      "workers": kv.num_workers, "accuracy": job.accuracy(),
                                      "seconds": round(time.monotonic() - start, 1)}),
                          file=results, flush=True)


if __name__ == "__main__":
    main()
