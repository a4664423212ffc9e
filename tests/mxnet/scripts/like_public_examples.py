"""What MXNet's public examples do with a store, in small; knows nothing of pushpull. Each rank starts with other
weights and other data; prints a digest of the parameters after each training."""

import hashlib
import logging
import os

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

logging.basicConfig(level=logging.WARNING)
KV = mx.kvstore.create("dist_sync")
RANDOM = np.random.RandomState(KV.rank)
mx.random.seed(50 + KV.rank)


def report(name, values):
    digest = hashlib.sha256()
    for value in values:
        assert np.isfinite(value.asnumpy()).all(), name
        digest.update(value.asnumpy().tobytes())
    print(name, digest.hexdigest()[:16])


def points(count=96, features=20):
    data = RANDOM.rand(count, features).astype("float32")
    return data, (data.sum(axis=1) > features / 2).astype("float32")


def module_with_resized_data_schedule_and_checkpoints():
    data, labels = points(count=96 + 32 * KV.rank)  # an epoch of another length on each worker
    batches = mx.io.ResizeIter(mx.io.NDArrayIter(data, labels, 16, shuffle=True), 6)
    net = mx.sym.FullyConnected(mx.sym.Flatten(mx.sym.Variable("data")), num_hidden=16, name="fc1")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="relu"), num_hidden=2, name="fc2")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
    schedule = mx.lr_scheduler.MultiFactorScheduler(step=[6, 12], factor=0.5, base_lr=0.2)
    prefix = "model" if KV.rank == 0 else f"model-{KV.rank}"
    module.fit(batches, eval_data=mx.io.NDArrayIter(data, labels, 16), eval_metric=["accuracy", "ce"],
               num_epoch=3, kvstore=KV, optimizer="sgd",
               optimizer_params={"learning_rate": 0.2, "wd": 1e-4, "momentum": 0.9, "multi_precision": True,
                                 "lr_scheduler": schedule},
               initializer=mx.init.Xavier(rnd_type="gaussian", factor_type="in", magnitude=2),
               batch_end_callback=[mx.callback.Speedometer(16, 2)],
               epoch_end_callback=mx.callback.do_checkpoint(prefix), allow_missing=True)
    assert os.path.exists(f"{prefix}-0003.params")
    report("module", module.get_params()[0].values())


def trainer_on_the_store_with_changing_rates():
    data, labels = points()
    devices = [mx.cpu(0), mx.cpu(1)]
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(16, activation="relu"), gluon.nn.Dense(2))
    net.initialize(mx.init.Xavier(magnitude=2), ctx=mx.cpu())
    net.collect_params().reset_ctx(devices)
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=KV,
                            optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "multi_precision": True})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(2):
        trainer.set_learning_rate(0.1 * 0.5 ** epoch)
        for begin in range(0, len(data), 24):
            xs = gluon.utils.split_and_load(mx.nd.array(data[begin:begin + 24]), devices)
            ys = gluon.utils.split_and_load(mx.nd.array(labels[begin:begin + 24]), devices)
            with autograd.record():
                losses = [loss(net(x), y) for x, y in zip(xs, ys)]
                autograd.backward(losses)
            trainer.step(24)
    for device in devices:
        report("trainer", [p.data(device) for p in net.collect_params().values()])


def trainer_without_a_store():
    data, labels = points()
    net = gluon.nn.Sequential()
    with net.name_scope():
        net.add(gluon.nn.Dense(16, activation="relu"), gluon.nn.Dense(2))
    net.initialize(mx.init.Xavier(magnitude=2.24), ctx=mx.cpu())
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    batches = gluon.data.DataLoader(gluon.data.ArrayDataset(data, labels), 16, shuffle=True, num_workers=0)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for x, y in batches:
        with autograd.record():
            value = loss(net(x), y)
            value.backward()
        trainer.step(x.shape[0])
    report("trainer without a store", [p.data() for p in net.collect_params().values()])


class LanguageModel(gluon.Block):
    """Embedding and output share their weights."""

    def __init__(self, words, units):
        super().__init__()
        with self.name_scope():
            self.encoder = gluon.nn.Embedding(words, units)
            self.rnn = gluon.rnn.LSTM(units, 2, input_size=units)
            self.decoder = gluon.nn.Dense(words, in_units=units, params=self.encoder.params)

    def forward(self, inputs, hidden):
        output, hidden = self.rnn(self.encoder(inputs), hidden)
        return self.decoder(output.reshape((-1, output.shape[2]))), hidden


def language_model_with_clipped_gradients():
    words, steps, batch = 30, 6, 4
    model = LanguageModel(words, 16)
    model.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(model.collect_params(), "sgd", {"learning_rate": 1, "momentum": 0, "wd": 0})
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    hidden = model.rnn.begin_state(func=mx.nd.zeros, batch_size=batch)
    for _ in range(4):
        inputs = mx.nd.array(RANDOM.randint(0, words, (steps, batch)))
        hidden = [state.detach() for state in hidden]
        with autograd.record():
            output, hidden = model(inputs, hidden)
            value = loss(output, inputs.reshape((-1,))) / (steps * batch)
            value.backward()
        gluon.utils.clip_global_norm([p.grad() for p in model.collect_params().values()], 0.25)
        trainer.step(1)
    report("language model", [p.data() for p in model.collect_params().values()])


assert KV.num_workers > 1
module_with_resized_data_schedule_and_checkpoints()
trainer_on_the_store_with_changing_rates()
trainer_without_a_store()
language_model_with_clipped_gradients()
KV._barrier()
