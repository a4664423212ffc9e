"""Module and BucketingModule, unchanged, on our store. Each rank starts with other weights."""

import os
import tempfile

import mxnet as mx
import numpy as np

from harness import equal


def symbol(batch_norm=True):
    net = mx.sym.Variable("data")
    net = mx.sym.FullyConnected(net, num_hidden=8, name="fc1")
    if batch_norm:
        net = mx.sym.BatchNorm(net, name="bn")
    net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.FullyConnected(net, num_hidden=2, name="fc2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def iterator(kv, batch=8):
    random = np.random.RandomState(50 + kv.rank)
    points = random.randn(64, 4).astype("float32")
    labels = (points.sum(axis=1) > 0).astype("float32")
    return mx.io.NDArrayIter(points, labels, batch_size=batch)


def assert_identical(kv, values):
    for name, own in values.items():
        theirs = own.copy()
        kv.broadcast(f"identical {name}", theirs, root_rank=0)
        assert np.array_equal(own.asnumpy(), theirs.asnumpy()), name


def check_auxiliary_states_start_alike(kv):
    module = mx.mod.Module(symbol())
    module.bind(*_shapes(iterator(kv)))
    module.init_params()
    _, aux = module.get_params()
    module.set_params({}, {name: mx.nd.full(value.shape, 5 + kv.rank) for name, value in aux.items()},
                      allow_missing=True)
    module.init_optimizer(kvstore=kv)
    for on_devices in module._exec_group.aux_arrays:
        equal(on_devices[0], 5)
    _, aux = module.get_params()
    for value in aux.values():
        equal(value, 5)


def _shapes(data):
    return data.provide_data, data.provide_label


def check_fit(kv):
    for contexts in (mx.cpu(), [mx.cpu(0), mx.cpu(1)]):
        module = mx.mod.Module(symbol(batch_norm=False), context=contexts)
        module.fit(iterator(kv), num_epoch=6, kvstore="dist_sync_pushpull",
                   initializer=mx.init.Uniform(0.5 + kv.rank), optimizer="sgd",
                   optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
        weights, _ = module.get_params()
        assert_identical(kv, weights)
        assert module._optimizer.rescale_grad == 1 / (8 * kv.num_workers)
        assert module._kvstore.type == kv.type and not module._update_on_kvstore
        accuracy = dict(module.score(iterator(kv), "acc"))["accuracy"]
        assert accuracy > 0.9, accuracy


def check_optimizer_states(kv):
    module = mx.mod.Module(symbol())
    data = iterator(kv)
    module.fit(data, num_epoch=1, kvstore=kv, optimizer="adam")
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "model")
        module.save_checkpoint(prefix, 1, save_optimizer_states=True)
        again = mx.mod.Module.load(prefix, 1, load_optimizer_states=True)
        data.reset()
        again.fit(data, num_epoch=1, kvstore=kv, optimizer="adam")
    weights, _ = again.get_params()
    assert_identical(kv, weights)


def check_bucketing(kv):
    def generate(length):
        data = mx.sym.Variable("data")
        shared = mx.sym.FullyConnected(mx.sym.sum(data, axis=1, keepdims=True), num_hidden=4, name="fc")
        out = mx.sym.FullyConnected(shared, num_hidden=2, name="out")
        return mx.sym.SoftmaxOutput(out, name="softmax"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(generate, default_bucket_key=6)
    module.bind([("data", (4, 6))], [("softmax_label", (4,))])
    module.init_params(mx.init.Uniform(0.5 + kv.rank))
    module.init_optimizer(kvstore=kv, optimizer_params={"learning_rate": 0.1})
    for i in range(6):
        length = 6 if i % 2 == 0 else 3
        batch = mx.io.DataBatch([mx.nd.random.uniform(shape=(4, length))], [mx.nd.zeros((4,))],
                                bucket_key=length, provide_data=[("data", (4, length))],
                                provide_label=[("softmax_label", (4,))])
        module.forward_backward(batch)
        module.update()
    weights, _ = module.get_params()
    assert_identical(kv, weights)


def check_other_stores_as_before(kv):
    module = mx.mod.Module(symbol(), context=[mx.cpu(0), mx.cpu(1)])
    module.fit(iterator(kv), num_epoch=1, kvstore="local")
    assert module._kvstore.type == "local"
    for name, value in module.get_params()[0].items():
        assert np.isfinite(value.asnumpy()).all(), name
