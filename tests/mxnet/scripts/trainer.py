"""Gluon's Trainer in its forms. Each rank starts with other weights and sees other data."""

import os
import tempfile

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

import harness
import pushpull
from harness import raised


def dense_net(units=(8, 3), in_units=0, prefix=None):
    net = nn.HybridSequential(prefix=prefix)
    with net.name_scope():
        for i, width in enumerate(units):
            net.add(nn.Dense(width, activation="tanh" if i + 1 < len(units) else None,
                             in_units=in_units if i == 0 else units[i - 1] if in_units else 0))
    return net


def data(kv, count=6, features=5):
    random = np.random.RandomState(1000 + kv.rank)
    return mx.nd.array(random.rand(count, features)), mx.nd.array(random.rand(count, 3))


def step(net, trainer, inputs, targets, batch, loss=gluon.loss.L2Loss()):
    with autograd.record():
        value = loss(net(inputs), targets)
    value.backward()
    trainer.step(batch)
    return value


def assert_identical(kv, net):
    """Bit by bit what rank 0 has."""
    for name, parameter in net.collect_params().items():
        for own in parameter.list_data():
            theirs = own.copy()
            kv.broadcast(f"identical {name}", theirs, root_rank=0)
            assert np.array_equal(own.asnumpy(), theirs.asnumpy()), name


def train(kv, net, steps=4, ctx=None, optimizer="sgd", options=None, **trainer_options):
    net.initialize(mx.init.Uniform(0.5), ctx=ctx)
    trainer = gluon.Trainer(net.collect_params(), optimizer, options or {"learning_rate": 0.1},
                            kvstore=trainer_options.pop("kvstore", kv), **trainer_options)
    inputs, targets = data(kv)
    for _ in range(steps):
        step(net, trainer, inputs, targets, 6 * kv.num_workers)
    return trainer


def check_store_by_name_and_deferred_shapes(kv):
    net = dense_net()
    trainer = train(kv, net, kvstore="dist_sync_pushpull")
    assert trainer._kvstore.type == kv.type and trainer._update_on_kvstore is False
    assert_identical(kv, net)


def check_optimizers(kv):
    for optimizer in ("adam", "nag", "rmsprop", "lamb"):
        net = dense_net()
        train(kv, net, optimizer=optimizer, options={"learning_rate": 0.01})
        assert_identical(kv, net)


def check_same_as_one_process_on_all_data(kv):
    """N workers with a share each end where one process ends that sees all of it."""
    def start_values(shapes):
        random = np.random.RandomState(7)
        return [mx.nd.array(random.uniform(-0.5, 0.5, shape)) for shape in shapes]

    net, alone = dense_net(in_units=5), dense_net(in_units=5)
    for each in (net, alone):
        each.initialize()
        parameters = list(each.collect_params().values())
        for parameter, value in zip(parameters, start_values([p.shape for p in parameters])):
            parameter.set_data(value)
    together = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9},
                             kvstore=kv)
    single = gluon.Trainer(alone.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9},
                           kvstore=None)
    random = np.random.RandomState(3)
    everything = random.rand(8 * kv.num_workers, 5), random.rand(8 * kv.num_workers, 3)
    for _ in range(20):
        mine = [mx.nd.array(part[kv.rank::kv.num_workers]) for part in everything]
        step(net, together, *mine, 8 * kv.num_workers)
        step(alone, single, *[mx.nd.array(part) for part in everything], 8 * kv.num_workers)
    for ours, theirs in zip(net.collect_params().values(), alone.collect_params().values()):
        difference = np.linalg.norm(ours.data().asnumpy() - theirs.data().asnumpy())
        assert difference <= 1e-4 * np.linalg.norm(theirs.data().asnumpy())


def check_several_devices(kv):
    devices = [mx.cpu(0), mx.cpu(1)]
    net = dense_net()
    net.initialize(mx.init.Uniform(0.5), ctx=devices)
    trainer = gluon.Trainer(net.collect_params(), "adam", kvstore=kv)
    inputs, targets = data(kv, count=8)
    for _ in range(4):
        parts = list(zip(gluon.utils.split_and_load(inputs, devices),
                         gluon.utils.split_and_load(targets, devices)))
        with autograd.record():
            losses = [gluon.loss.L2Loss()(net(x), y) for x, y in parts]
        for loss in losses:
            loss.backward()
        trainer.step(8 * kv.num_workers)
    assert_identical(kv, net)


def check_convolutions_after_inference(kv):
    """A forward pass without gradients brings weights into oneDNN's layout before they are sent."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(32, 3, activation="relu"), nn.BatchNorm(), nn.Conv2D(32, 3), nn.Flatten(),
            nn.Dense(3))
    net.initialize()
    net.hybridize()
    image = mx.nd.random.uniform(shape=(4, 16, 12, 12))
    net(image).wait_to_read()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv)
    target = mx.nd.ones((4, 3))
    for _ in range(3):
        step(net, trainer, image, target, 4 * kv.num_workers)
        net(image)
    trained = [p for p in net.collect_params().values() if p.grad_req != "null"]
    for parameter in trained:
        theirs = parameter.data().copy()
        kv.broadcast(f"conv {parameter.name}", theirs, root_rank=0)
        assert np.array_equal(parameter.data().asnumpy(), theirs.asnumpy()), parameter.name


def check_gradients_that_add_up_or_are_not_wanted(kv):
    net = dense_net(in_units=5)
    net.initialize()
    parameters = list(net.collect_params().values())
    parameters[0].grad_req = "add"
    parameters[1].grad_req = "null"
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv)
    inputs, targets = data(kv)
    frozen = None
    for _ in range(3):
        for _ in range(2):  # two passes in one step
            with autograd.record():
                loss = gluon.loss.L2Loss()(net(inputs), targets)
            loss.backward()
        trainer.step(12 * kv.num_workers)
        for parameter in parameters:
            if parameter.grad_req == "add":
                parameter.zero_grad()
        frozen = parameters[1].data().asnumpy() if frozen is None else frozen
    assert np.array_equal(parameters[1].data().asnumpy(), frozen)
    assert_identical(kv, net)


def check_stale_gradients(kv):
    used, unused = dense_net(in_units=5), nn.Dense(2, in_units=2)
    used.initialize()
    unused.initialize()
    parameters = used.collect_params()
    parameters.update(unused.collect_params())
    trainer = gluon.Trainer(parameters, "sgd", {"learning_rate": 0.1}, kvstore=kv)
    inputs, targets = data(kv)
    with autograd.record():
        loss = gluon.loss.L2Loss()(used(inputs), targets)
    loss.backward()
    trainer.step(6, ignore_stale_grad=True)
    assert_identical(kv, used)
    assert_identical(kv, unused)


def check_allreduce_clip_update(kv):
    net = dense_net(in_units=5)
    net.initialize(mx.init.Uniform(0.5))
    schedule = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=0.2)
    trainer = gluon.Trainer(net.collect_params(), "sgd",
                            {"learning_rate": 0.2, "lr_scheduler": schedule, "clip_gradient": 5},
                            kvstore=kv, update_on_kvstore=False)
    inputs, targets = data(kv)
    for _ in range(3):
        with autograd.record():
            loss = gluon.loss.L2Loss()(net(inputs), targets)
        loss.backward()
        trainer.allreduce_grads()
        gradients = [p.grad() for p in net.collect_params().values()]
        norm = gluon.utils.clip_global_norm(gradients, 0.01)
        assert np.isfinite(norm)
        trainer.update(1)
    assert trainer.learning_rate < 0.2
    assert_identical(kv, net)


def check_saved_states(kv):
    net = dense_net(in_units=5)
    trainer = train(kv, net, optimizer="adam", options={"learning_rate": 0.01})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "states")
        trainer.save_states(path)
        trainer.load_states(path)
    inputs, targets = data(kv)
    step(net, trainer, inputs, targets, 6 * kv.num_workers)
    assert_identical(kv, net)


def check_learning_rate_schedule(kv):
    net = dense_net(in_units=5)
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.4)
    trainer = train(kv, net, steps=6, options={"lr_scheduler": schedule, "learning_rate": 0.4})
    assert trainer.learning_rate == 0.1
    raised(UserWarning, trainer.set_learning_rate, 1.0)  # a schedule is in charge
    assert_identical(kv, net)


def check_hybridized_and_not(kv):
    """All ways of running the network give the same parameters."""
    results = []
    for hybridize in (None, {}, {"static_alloc": True, "static_shape": True}):
        net = dense_net(in_units=5)
        if hybridize is not None:
            net.hybridize(**hybridize)
        mx.random.seed(3 + kv.rank)
        train(kv, net)
        assert_identical(kv, net)
        results.append([p.data().asnumpy() for p in net.collect_params().values()])
    for result in results[1:]:
        for mine, theirs in zip(result, results[0]):
            assert np.allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def check_estimator(kv):
    from mxnet.gluon.contrib.estimator import estimator
    net = dense_net(in_units=5)
    net.initialize(mx.init.Uniform(0.5))
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv)
    fitting = estimator.Estimator(net=net, loss=gluon.loss.L2Loss(), trainer=trainer, context=mx.cpu(),
                                  train_metrics=mx.metric.MSE())
    inputs, targets = data(kv, count=16)
    batches = gluon.data.DataLoader(gluon.data.ArrayDataset(inputs, targets), batch_size=4)
    fitting.fit(train_data=batches, epochs=2)
    assert_identical(kv, net)


def check_views_of_a_gradient(kv):
    """A slice of a gradient is exchanged where it lies, the rest stays."""
    weight = gluon.Parameter("sliced", shape=(6, 2), init=mx.init.One())
    weight.initialize()
    with autograd.record():
        loss = (weight.data() * (kv.rank + 1)).sum()
    loss.backward()
    kv.pushpull("rows", weight.grad()[2:4])
    sums = weight.grad().asnumpy()
    assert (sums[2:4] == harness.total(kv)).all()
    assert (sums[:2] == kv.rank + 1).all() and (sums[4:] == kv.rank + 1).all()


def check_two_trainers_and_tied_parameters(kv):
    first = nn.Dense(5, in_units=5, prefix="tied_")
    second = nn.Dense(5, in_units=5, params=first.params)
    head = nn.Dense(3, in_units=5)
    for layer in (first, head):
        layer.initialize(mx.init.Uniform(0.5))
    body_trainer = gluon.Trainer(first.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv)
    head_trainer = gluon.Trainer(head.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv)
    inputs, targets = data(kv)
    for _ in range(3):
        with autograd.record():
            loss = gluon.loss.L2Loss()(head(second(first(inputs))), targets)
        loss.backward()
        body_trainer.step(6)
        head_trainer.step(6)
    assert_identical(kv, first)
    assert_identical(kv, head)


def check_numpy_interface(kv):
    mx.npx.set_np()
    try:
        net = nn.HybridSequential()
        net.add(nn.Dense(4, in_units=5, activation="tanh"), nn.Dense(3, in_units=4))
        net.initialize(mx.init.Uniform(0.5))
        net.hybridize()
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, kvstore=kv)
        inputs, targets = (array.as_np_ndarray() for array in data(kv))
        for _ in range(3):
            step(net, trainer, inputs, targets, 6)
        assert_identical(kv, net)
    finally:
        mx.npx.reset_np()


def check_float16_parameters(kv):
    weight = gluon.Parameter("weight", shape=(5,), dtype="float16", init=mx.init.Uniform(0.5))
    weight.initialize()
    trainer = gluon.Trainer([weight], "sgd", {"learning_rate": 0.1, "multi_precision": True}, kvstore=kv)
    inputs = data(kv)[0].astype("float16")
    for _ in range(3):
        with autograd.record():
            loss = (inputs * weight.data()).sum()
        loss.backward()
        trainer.step(6)
    assert weight.grad().dtype == np.float16
    theirs = weight.data().copy()
    kv.broadcast("float16 weight", theirs, root_rank=0)
    assert np.array_equal(weight.data().asnumpy(), theirs.asnumpy())


def check_refusals(kv):
    inputs, targets = data(kv)
    net = dense_net(in_units=5)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=kv, update_on_kvstore=True)
    text = raised(ValueError, step, net, trainer, inputs, targets, 1)
    assert "Please set update_on_kvstore=False when training with" in text

    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore=kv,
                            compression_params={"type": "2bit", "threshold": 0.5})
    text = raised(pushpull.UnsupportedError, step, net, trainer, inputs, targets, 1)
    assert text == (f"set_gradient_compression is not supported in kvstore with type {kv.type}; cast "
                    "gradients to float16 or bfloat16 to send half the bytes")

    embedding = nn.Embedding(10, 3, sparse_grad=True)
    embedding.initialize()
    trainer = gluon.Trainer(embedding.collect_params(), "sgd", kvstore=kv)
    words = mx.nd.array([1, 2, 3])
    with autograd.record():
        loss = embedding(words).sum()
    loss.backward()
    way_out = "are not exchanged: use dense ones (sparse_grad=False, no row_sparse parameters)"
    assert raised(pushpull.UnsupportedError, trainer.step, 1) == (
        f"parameter {embedding.weight.name} has sparse gradients, which {way_out}")

    for store in (kv, "dist_sync_pushpull"):
        sparse = gluon.Parameter("sparse", shape=(10, 3), stype="row_sparse", grad_stype="row_sparse")
        sparse.initialize(mx.init.One())
        trainer = gluon.Trainer([sparse], "sgd", kvstore=store)
        assert raised(pushpull.UnsupportedError, trainer.step, 1) == (
            f"parameter sparse has sparse gradients, which {way_out}")
    # Other stores are none of our business.
    trainer = gluon.Trainer(embedding.collect_params(), "sgd", kvstore="local")
    trainer.step(1)
