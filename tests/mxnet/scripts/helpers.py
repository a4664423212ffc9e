"""What users of Horovod know, on our store. Each rank starts with other weights and sees other data."""

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

import pushpull.mxnet as pp
from harness import equal, raised, total


def dense_net(in_units=5):
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="tanh", in_units=in_units), nn.Dense(3, in_units=8))
    return net


def initialized_net(**options):
    net = dense_net(**options)
    net.initialize(mx.init.Uniform(0.5))
    return net


def data(kv, count=6):
    random = np.random.RandomState(1000 + kv.rank)
    return mx.nd.array(random.rand(count, 5)), mx.nd.array(random.rand(count, 3))


def backward(net, inputs, targets):
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(inputs), targets)
    loss.backward()


def step(net, trainer, inputs, targets):
    backward(net, inputs, targets)
    trainer.step(len(inputs))


def values(net):
    return [parameter.data().asnumpy() for parameter in net.collect_params().values()]


def assert_identical(net):
    pp.check_parameters(net.collect_params())


def assert_close(net, other):
    for mine, theirs in zip(values(net), values(other)):
        assert np.allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def copy_of(net, **options):
    again = initialized_net(**options)
    for parameter, value in zip(again.collect_params().values(), values(net)):
        parameter.set_data(mx.nd.array(value))
    return again


# -- the group --------------------------------------------------------------------------------------
def check_before_init(kv):
    assert not pp.is_initialized()
    assert raised(ValueError, pp.rank) == "there is no group yet: call pushpull.mxnet.init() first"
    raised(ValueError, pp.DistributedTrainer, {}, "sgd")


def check_a_group_of_its_own(kv):
    pp.init()
    pp.init()
    own = pp.kvstore()
    assert own is not kv and pp.is_initialized()
    assert (pp.rank(), pp.size()) == (kv.rank, kv.num_workers)
    assert (pp.local_rank(), pp.local_size()) == (kv.local_rank, kv.local_size)
    assert "another store" in raised(ValueError, pp.init, kv)
    equal(pp.allreduce(mx.nd.ones((2,)), average=False), kv.num_workers)
    pp.barrier()
    pp.shutdown()
    pp.shutdown()
    assert not pp.is_initialized()
    assert "was closed" in raised(pp.CollectiveError, own.barrier)
    # The rest works in the store of the test.
    pp.init(kv)
    assert pp.kvstore() is kv


# -- arrays -----------------------------------------------------------------------------------------
def check_allreduce(kv):
    mine = mx.nd.full((3, 2), kv.rank + 1)
    equal(pp.allreduce(mine), total(kv) / kv.num_workers)
    equal(mine, kv.rank + 1)
    equal(pp.allreduce(mine, average=False, name="named"), total(kv))
    equal(pp.allreduce(mine, average=False, prescale_factor=2, postscale_factor=0.5), total(kv))
    assert pp.allreduce_(mine, average=False) is mine
    equal(mine, total(kv))
    numbers = mx.nd.full((2,), kv.rank + 1, dtype="int32")
    equal(pp.allreduce(numbers, average=False), total(kv))
    if kv.num_workers > 1:
        assert "cannot scale int32" in raised(pp.CollectiveError,
                                              lambda: pp.allreduce(numbers).wait_to_read())
    both = [mx.nd.full((3,), kv.rank + 1, ctx=mx.cpu(i)) for i in range(2)]
    for array in pp.allreduce(both, average=False):
        equal(array, 2 * total(kv))


def check_large_numbers_in_float16(kv):
    large = mx.nd.full((4,), 60000, dtype="float16")
    if kv.num_workers > 1:
        assert np.isinf(pp.allreduce(large, average=False).asnumpy()).all()
    divided_first = pp.allreduce(large, average=False, prescale_factor=1 / kv.num_workers)
    assert np.allclose(divided_first.asnumpy(), 60000, rtol=1e-3)


def check_grouped(kv):
    arrays = [mx.nd.full((i + 1,), kv.rank + i) for i in range(5)]
    ranks = total(kv) - kv.num_workers
    for i, array in enumerate(pp.grouped_allreduce(arrays, average=False, name="group")):
        equal(array, ranks + i * kv.num_workers)
    assert pp.grouped_allreduce_(arrays) is arrays
    for i, array in enumerate(arrays):
        equal(array, ranks / kv.num_workers + i)


def check_many_calls_without_a_name(kv):
    for i in range(200):
        equal(pp.allreduce(mx.nd.full((i % 3 + 1,), i), average=False), i * kv.num_workers)


def check_allgather(kv):
    for dtype in ("float32", "int64", "float16"):
        mine = mx.nd.full((kv.rank + 1, 2), kv.rank + 10, dtype=dtype)
        together = pp.allgather(mine)
        expected = np.concatenate([np.full((r + 1, 2), r + 10) for r in range(kv.num_workers)])
        assert together.dtype == mine.dtype
        equal(together, expected)
    only_first = mx.nd.ones((3,)) if kv.rank == 0 else mx.np.empty((0,)).as_nd_ndarray()
    equal(pp.allgather(only_first, name="some are empty"), np.ones(3))
    both = pp.grouped_allgather([mx.nd.full((1,), kv.rank), mx.nd.full((2,), kv.rank)])
    assert [array.shape[0] for array in both] == [kv.num_workers, 2 * kv.num_workers]


def check_broadcast(kv):
    for root in range(kv.num_workers):
        mine = mx.nd.full((3,), kv.rank + 1)
        equal(pp.broadcast(mine, root), root + 1)
        equal(mine, kv.rank + 1)
        equal(pp.broadcast_(mine, root, name="in place"), root + 1)
        equal(mine, root + 1)


def check_objects(kv):
    thing = {"epoch": 3, "name": "é" * 1000, "rank": kv.rank}
    last = kv.num_workers - 1
    assert pp.broadcast_object(thing, root_rank=last)["rank"] == last
    assert [each["rank"] for each in pp.allgather_object({**thing, "more": "x" * kv.rank})] == list(
        range(kv.num_workers))


def check_numpy_arrays(kv):
    mine = mx.np.full((2, 2), kv.rank + 1.0)
    average = pp.allreduce(mine)
    assert isinstance(average, mx.np.ndarray)
    equal(average, total(kv) / kv.num_workers)
    together = pp.allgather(mine)
    assert isinstance(together, mx.np.ndarray)
    equal(together, np.repeat(np.arange(1, kv.num_workers + 1), 2).reshape(-1, 1))


# -- parameters -------------------------------------------------------------------------------------
def check_broadcast_parameters(kv):
    last = kv.num_workers - 1
    net = initialized_net()
    pp.broadcast_parameters(net.collect_params(), root_rank=last)
    assert_identical(net)

    arrays = {"b": mx.nd.full((2,), kv.rank), "a": mx.nd.full((3,), kv.rank)}
    pp.broadcast_parameters(arrays, root_rank=last, prefix="again.")
    for array in arrays.values():
        equal(array, last)
    pp.broadcast_parameters(list(initialized_net().collect_params().values()), prefix="list.")
    assert "not int" in raised(ValueError, pp.broadcast_parameters, 3)


def check_broadcast_of_deferred_shapes(kv):
    net = dense_net(in_units=0)
    net.initialize(mx.init.Uniform(0.5))
    if kv.rank == 0:
        net(data(kv)[0])  # one rank knows its shapes before, the others not yet
    pp.broadcast_parameters(net.collect_params())
    inputs, _ = data(kv)
    net.hybridize()
    with autograd.record():
        out = net(inputs)
    weight = net[0].weight.data()
    theirs = pp.broadcast(weight, 0)
    assert np.array_equal(weight.asnumpy(), theirs.asnumpy())
    # The first forward pass used the values that came.
    expected = net[1](mx.nd.tanh(mx.nd.FullyConnected(inputs, theirs, net[0].bias.data(), num_hidden=8)))
    assert np.allclose(out.asnumpy(), expected.asnumpy(), rtol=1e-5)
    assert_identical(net)
    # Once only.
    net[0].weight.set_data(mx.nd.full(weight.shape, kv.rank))
    equal(net[0].weight.data(), kv.rank)


def check_parameters_that_were_never_initialized(kv):
    parameter = gluon.Parameter("lonely", shape=(2,))
    assert "has not been initialized" in raised(RuntimeError, pp.broadcast_parameters, [parameter])


def check_diverging_parameters_are_named(kv):
    net = initialized_net()
    pp.broadcast_parameters(net.collect_params())
    names = list(net.collect_params())
    pp.check_parameters(net.collect_params())
    if kv.num_workers == 1:
        return
    if kv.rank == 1:
        for parameter in list(net.collect_params().values())[1:3]:
            parameter.set_data(parameter.data() + 1e-6)
    text = raised(pp.CollectiveError, pp.check_parameters, net.collect_params(), "after a test")
    assert text == (f"after a test parameter {names[1]} differs: rank 1 does not have the value of rank 0; all "
                    "workers must start from the same values (broadcast_parameters) and apply the same "
                    "updates")
    # The group lives on.
    pp.broadcast_parameters(net.collect_params())
    assert_identical(net)


# -- DistributedTrainer -----------------------------------------------------------------------------
def reference_trainer(kv, net, **options):
    return gluon.Trainer(net.collect_params(), "sgd", options or {"learning_rate": 0.1, "momentum": 0.9},
                         kvstore=kv)


def check_trainer_averages(kv):
    """step(local batch) of ours is what step(global batch) of Trainer is."""
    net = initialized_net()
    pp.broadcast_parameters(net.collect_params())
    other = copy_of(net)
    trainer = pp.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9},
                                    check_every=2)
    expected = reference_trainer(kv, other)
    inputs, targets = data(kv)
    for _ in range(4):
        step(net, trainer, inputs, targets)
        backward(other, inputs, targets)
        expected.step(len(inputs) * kv.num_workers)
    assert_close(net, other)
    assert_identical(net)


def check_trainer_without_broadcast(kv):
    net = initialized_net()
    trainer = pp.DistributedTrainer(net.collect_params(), "adam", prefix="no broadcast.")
    for _ in range(2):
        step(net, trainer, *data(kv))
    assert_identical(net)


def check_trainer_with_optimizer_objects(kv):
    for wrap in (False, True):
        net = initialized_net()
        optimizer = mx.optimizer.SGD(learning_rate=0.1)
        before = optimizer.rescale_grad
        if wrap:
            optimizer = pp.DistributedOptimizer(optimizer)
        trainer = pp.DistributedTrainer(net.collect_params(), optimizer)
        assert trainer._scale == before / kv.num_workers
        step(net, trainer, *data(kv))
        assert_identical(net)


def check_trainer_with_allreduce_and_update(kv):
    net = initialized_net()
    trainer = pp.DistributedTrainer(net.collect_params(), "sgd", gradient_predivide_factor=2.0)
    backward(net, *data(kv))
    trainer.allreduce_grads()
    gluon.utils.clip_global_norm([p.grad() for p in net.collect_params().values()], 0.1)
    trainer.update(6)
    assert_identical(net)


def check_compression(kv):
    """Half the bytes, nearly the same result; no overflow however many workers."""
    net = initialized_net()
    pp.broadcast_parameters(net.collect_params())
    for compression, tolerance in ((pp.Compression.fp16, 1e-3), (pp.Compression.bf16, 1e-2)):
        compressed, plain = copy_of(net), copy_of(net)
        trainer = pp.DistributedTrainer(compressed.collect_params(), "sgd", {"learning_rate": 0.5},
                                        compression=compression)
        expected = reference_trainer(kv, plain, learning_rate=0.5)
        inputs, targets = data(kv)
        step(compressed, trainer, inputs, targets)
        backward(plain, inputs, targets)
        expected.step(len(inputs) * kv.num_workers)
        assert_identical(compressed)
        for mine, theirs, start in zip(values(compressed), values(plain), values(net)):
            change = np.abs(theirs - start).max()
            assert 0 < np.abs(mine - theirs).max() <= tolerance * change + 1e-7
    assert pp.Compression.bf16.compress(mx.nd.ones((2,))).dtype != np.float32
    whole = mx.nd.ones((2,), dtype="int32")
    assert pp.Compression.fp16.compress(whole) is whole


def check_accumulation(kv):
    """Three passes and one exchange are one step on the data of all three."""
    net = initialized_net()
    pp.broadcast_parameters(net.collect_params())
    other = copy_of(net)
    trainer = pp.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, accumulate=3)
    expected = reference_trainer(kv, other, learning_rate=0.1)
    inputs, targets = data(kv, count=18)
    for _ in range(2):
        for begin in (0, 6, 12):
            before = values(net)
            step(net, trainer, inputs[begin:begin + 6], targets[begin:begin + 6])
            changed = not all(np.array_equal(a, b) for a, b in zip(before, values(net)))
            assert changed == (begin == 12)
        backward(other, inputs, targets)
        expected.step(18 * kv.num_workers)
    assert_close(net, other)
    assert_identical(net)
    assert "1 or more" in raised(ValueError, pp.DistributedTrainer, net.collect_params(), "sgd",
                                 accumulate=0)


def check_several_devices(kv):
    devices = [mx.cpu(0), mx.cpu(1)]
    net = dense_net()
    net.initialize(mx.init.Uniform(0.5), ctx=devices)
    pp.broadcast_parameters(net.collect_params())
    trainer = pp.DistributedTrainer(net.collect_params(), "sgd", check_every=1,
                                    compression=pp.Compression.fp16)
    inputs, targets = data(kv, count=8)
    for _ in range(2):
        with autograd.record():
            losses = [gluon.loss.L2Loss()(net(x), y) for x, y in zip(
                gluon.utils.split_and_load(inputs, devices), gluon.utils.split_and_load(targets, devices))]
        autograd.backward(losses)
        trainer.step(8)
    assert_identical(net)


def check_parameters_in_another_order(kv):
    one = gluon.Parameter("one", shape=(2,), init="ones")
    two = gluon.Parameter("two", shape=(2,), init="ones")
    for parameter in (one, two):
        parameter.initialize()
    trainer = pp.DistributedTrainer([one, two] if kv.rank == 0 else [two, one], "sgd")
    with autograd.record():
        loss = (one.data() + 2 * two.data()).sum()
    loss.backward()
    if kv.num_workers == 1:
        trainer.step(1)
        return
    mine = "one" if kv.rank == 0 else "two"
    assert raised(pp.CollectiveError, trainer.step, 1) == (
        "the workers have the same parameters in different orders, from number 0 on "
        f"({mine} on rank {kv.rank}): build the network in the same order on all workers")


def check_sparse_gradients_are_refused(kv):
    embedding = nn.Embedding(10, 3, sparse_grad=True)
    embedding.initialize()
    text = raised(pp.UnsupportedError, pp.DistributedTrainer, embedding.collect_params(), "sgd")
    assert text == (f"parameter {embedding.weight.name} has sparse gradients, which are not exchanged: use "
                    "dense ones (sparse_grad=False, no row_sparse parameters)")


# -- join -------------------------------------------------------------------------------------------
def check_join_gives_the_last(kv):
    """Every rank makes other numbers of calls, of keys that others may never have seen."""
    for i in range(kv.rank + 1):
        together = kv.num_workers - i  # ranks that still have data
        equal(pp.allreduce(mx.nd.ones((4,)), average=False), together)
        named = mx.nd.full((3,), 2, dtype="int32")
        kv.pushpull(f"only later {i}", named)
        equal(named, 2 * together)
        kv.barrier()
    last = kv.num_workers - 1
    assert pp.join() == last
    equal(pp.allreduce(mx.nd.ones((4,)), average=False), kv.num_workers)
    assert 0 <= pp.join() <= last


def check_join_with_uneven_data(kv):
    """11 steps on one rank, 10 on the other, and so on: equal parameters and states at the end."""
    net = initialized_net()
    trainer = pp.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9},
                                    check_every=11)
    inputs, targets = data(kv)
    for _ in range(10 + kv.rank):
        step(net, trainer, inputs, targets)
    assert trainer.join() == kv.num_workers - 1
    assert_identical(net)
    # The next epoch starts from equal momentum.
    for _ in range(2):
        step(net, trainer, inputs, targets)
    assert_identical(net)
    assert trainer._optimizer.num_update == 10 + kv.num_workers - 1 + 2


def check_join_without_any_data(kv):
    net = initialized_net()
    trainer = pp.DistributedTrainer(net.collect_params(), "sgd", check_every=1)
    for epoch in range(2):
        if kv.rank > 0 or epoch == 1:
            step(net, trainer, *data(kv))
        trainer.join()
        assert_identical(net)


def check_join_in_the_middle_of_an_accumulation(kv):
    net = initialized_net()
    trainer = pp.DistributedTrainer(net.collect_params(), "adam", accumulate=2)
    inputs, targets = data(kv)
    for _ in range(4 + kv.rank):
        step(net, trainer, inputs, targets)
    trainer.join()
    assert_identical(net)


def check_broadcast_while_a_rank_has_joined(kv):
    if kv.num_workers == 1:
        return
    if kv.rank == 0:
        text = raised(pp.CollectiveError, lambda: pp.broadcast(mx.nd.ones((2,)), 0, "late").wait_to_read())
        assert text.startswith("broadcast call 1 of key 'broadcast:late' cannot go on: rank "), text
        assert "has joined, as one that has no more data, and would miss the value" in text
    pp.join()
    equal(pp.broadcast(mx.nd.full((2,), kv.rank), 0, "late"), 0)


# -- DistributedOptimizer ---------------------------------------------------------------------------
def check_optimizer_in_a_loop(kv):
    weight = mx.nd.full((3,), 1.0)
    weight.attach_grad()
    optimizer = pp.DistributedOptimizer(mx.optimizer.SGD(learning_rate=1.0, momentum=0.9))
    updater = mx.optimizer.get_updater(optimizer)
    for i in range(2):
        with autograd.record():
            loss = (weight * (kv.rank + 1)).sum()
        loss.backward()
        updater(0, weight.grad, weight)
    gradient = total(kv) / kv.num_workers
    assert np.allclose(weight.asnumpy(), 1 - gradient - 1.9 * gradient, rtol=1e-6)
    optimizer.set_learning_rate(0.5)
    assert optimizer.learning_rate == 0.5 and optimizer.momentum == 0.9


def check_optimizer_in_module(kv):
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc"),
                                  name="softmax")
    random = np.random.RandomState(kv.rank)
    points = random.randn(32, 4).astype("float32")
    batches = mx.io.NDArrayIter(points, (points.sum(axis=1) > 0).astype("float32"), batch_size=8)
    module = mx.mod.Module(symbol)
    module.bind(batches.provide_data, batches.provide_label)
    module.init_params(mx.init.Uniform(0.5))
    arguments, auxiliary = module.get_params()
    pp.broadcast_parameters(arguments)
    module.set_params(arguments, auxiliary)
    optimizer = pp.DistributedOptimizer(mx.optimizer.SGD(learning_rate=0.5, rescale_grad=1 / 8))
    module.fit(batches, num_epoch=4, kvstore=None, optimizer=optimizer)
    pp.check_parameters(module.get_params()[0])
    assert dict(module.score(batches, "acc"))["accuracy"] > 0.8
