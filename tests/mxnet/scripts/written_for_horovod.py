"""Knows nothing of pushpull: imports horovod.mxnet, then byteps.mxnet."""

import mxnet as mx
from mxnet import autograd, gluon

import byteps.mxnet as bps
import horovod
import horovod.mxnet as hvd

hvd.init()
bps.init()
n = hvd.size()
mine = mx.nd.full((2,), hvd.rank() + 1)
assert (bps.rank(), bps.size(), bps.local_rank()) == (hvd.rank(), n, hvd.local_rank())
assert horovod.__version__.startswith("pushpull")

# horovod.mxnet
assert hvd.allreduce(mine, average=False).asnumpy().tolist() == [n * (n + 1) / 2] * 2
assert hvd.allreduce(mine).asnumpy().tolist() == [(n + 1) / 2] * 2
assert hvd.allreduce(mine, op=hvd.Sum, name="sum").asnumpy().tolist() == [n * (n + 1) / 2] * 2
assert hvd.broadcast(mine, 0).asnumpy().tolist() == [1, 1]
assert hvd.allgather(mine).shape == (2 * n,)
assert hvd.gloo_enabled() and not hvd.mpi_enabled()  # the starter's default


def train(trainer_of, broadcast):
    net = gluon.nn.Dense(3, in_units=4)
    mx.random.seed(hvd.rank())
    net.initialize(mx.init.Uniform(1), force_reinit=True)
    broadcast(net.collect_params(), root_rank=n - 1)
    root_bias = net.weight.data().copy()
    hvd.broadcast_(root_bias, root_rank=n - 1)
    assert (root_bias.asnumpy() == net.weight.data().asnumpy()).all()
    trainer = trainer_of(net.collect_params(), "sgd", {"learning_rate": 0.1})
    with autograd.record():
        loss = (net(mx.nd.full((1, 4), hvd.rank() + 1)) ** 2).sum()
    loss.backward()
    trainer.step(1)
    weights = hvd.allgather(net.weight.data().reshape((1, -1))).asnumpy()
    assert (weights == weights[0]).all()


train(hvd.DistributedTrainer, hvd.broadcast_parameters)
train(bps.DistributedTrainer, bps.broadcast_parameters)

# A trainer of BytePS takes the values of its root.
weight = gluon.Parameter("of the root", shape=(1,), init="zeros")
weight.initialize()
weight.set_data(mine[:1])
trainer = bps.DistributedTrainer([weight], "sgd", {"learning_rate": 1.0}, root_rank=n - 1)
with autograd.record():
    loss = weight.data()
loss.backward()
trainer.step(1)
assert weight.data().asscalar() == n - 1
bps.byteps_declare_tensor("w")
bps.byteps_push_pull(mine, name="w", is_average=False)
assert mine.asnumpy().tolist() == [n * (n + 1) / 2] * 2


def refusal(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except NotImplementedError as error:
        return str(error)
    raise AssertionError(f"{call} was not refused")


print(refusal(hvd.alltoall, mine))
print(refusal(hvd.allreduce, mine, process_set=1))
print(refusal(bps.DistributedTrainer, {}, "sgd", compression_params={"compressor": "onebit"}))
print(refusal(mx.kv.create, "dist_async"))
print(refusal(mx.kv.create, "dist_sync"))

# A store whose name has no "dist" counts for one device too.
weight = gluon.Parameter("weight", shape=(1,), init="zeros")
weight.initialize()
trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 1.0}, kvstore="horovod")
with autograd.record():
    loss = weight.data() * (hvd.rank() + 1)
loss.backward()
trainer.step(1)
assert weight.data().asscalar() == -n * (n + 1) / 2
hvd.shutdown()
print("done")
