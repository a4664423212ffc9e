"""AMP and 16-bit gradients. AMP changes MXNet's operators for the whole process, so these have one of their own."""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.contrib import amp
from mxnet.gluon import nn

import pushpull.mxnet as pp
from harness import equal, total

amp.init(target_dtype="bfloat16")

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])


def conv_net():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(4, 3, in_channels=1, activation="relu"), nn.Dense(3, in_units=4 * 6 * 6))
    net.initialize(mx.init.Uniform(0.3))
    net.hybridize()
    return net


def data(kv):
    random = np.random.RandomState(1000 + kv.rank)
    return mx.nd.array(random.rand(4, 1, 8, 8)), mx.nd.array(random.randint(0, 3, 4))


def backward(net, trainer, inputs, targets, factor=1.0):
    with autograd.record():
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(inputs), targets) * factor
        with amp.scale_loss(loss, trainer) as scaled:
            autograd.backward(scaled)
    return loss.mean().asscalar()


def weights(net):
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()]


def trainers(kv, net):
    yield gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv), kv.num_workers
    yield pp.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1}), 1


def check_training_in_bfloat16(kv):
    pp.init(kv)
    for i in range(2):
        net = conv_net()
        trainer, workers = list(trainers(kv, net))[i]
        amp.init_trainer(trainer)
        inputs, targets = data(kv)
        losses = []
        for _ in range(8):
            losses.append(backward(net, trainer, inputs, targets))
            trainer.step(4 * workers)
        assert losses[-1] < losses[0], losses
        pp.check_parameters(net.collect_params())


def check_overflow_on_one_rank_is_skipped_on_all(kv):
    """Dynamic loss scaling: the sum carries the infinity everywhere, so all ranks skip and halve alike."""
    for i in range(2):
        net = conv_net()
        trainer, workers = list(trainers(kv, net))[i]
        amp.init_trainer(trainer)
        scaler = trainer._amp_loss_scaler
        inputs, targets = data(kv)
        backward(net, trainer, inputs, targets)
        trainer.step(4 * workers)
        before, scale = weights(net), scaler._next_loss_scale

        last = kv.rank == kv.num_workers - 1
        backward(net, trainer, inputs, targets, factor=3e38 if last else 1.0)
        trainer.step(4 * workers)
        assert all(np.array_equal(a, b) for a, b in zip(before, weights(net)))
        assert scaler._next_loss_scale == scale / 2

        backward(net, trainer, inputs, targets)
        trainer.step(4 * workers)
        assert scaler.loss_scale == scale / 2
        assert not any(np.array_equal(a, b) for a, b in zip(before, weights(net)))
        assert all(np.isfinite(value).all() for value in weights(net))
        pp.check_parameters(net.collect_params())


def check_float16_gradients(kv):
    """They travel as float16; MXNet's own rule for master weights applies."""
    for trainer_of in (lambda p: gluon.Trainer(p, "sgd", {"multi_precision": True}, kvstore=kv),
                       lambda p: pp.DistributedTrainer(p, "sgd", {"multi_precision": True})):
        weight = gluon.Parameter("half", shape=(5,), dtype="float16", init=mx.init.Uniform(0.5))
        weight.initialize()
        trainer = trainer_of([weight])
        with autograd.record():
            loss = (weight.data() * (kv.rank + 1)).sum()
        loss.backward()
        trainer.allreduce_grads()
        assert weight.grad().dtype == np.float16
        equal(weight.grad(), total(kv))
        trainer.update(1)
        pp.check_parameters([weight])


def check_bfloat16_gradients(kv):
    # MXNet's astype() makes nonsense of bfloat16 once AMP is on; its cast() does not.
    grad = mx.nd.cast(mx.nd.full((3,), kv.rank + 1.5), dtype=BFLOAT16)
    kv.pushpull("bfloat16 gradient", grad)
    assert "bfloat16" in str(grad.dtype)
    equal(mx.nd.cast(grad, dtype="float32"), total(kv) + 0.5 * kv.num_workers)
