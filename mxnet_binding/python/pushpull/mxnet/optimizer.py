"""An optimizer that averages gradients before it uses them."""

import mxnet as mx

from pushpull.mxnet import group


class DistributedOptimizer(mx.optimizer.Optimizer):
    """Wraps an optimizer of MXNet: every gradient is averaged over all workers before the update.

    For Module (with ``kvstore=None``) and loops that call an Updater; with Gluon use DistributedTrainer.
    ``gradient_predivide_factor``: the part of the division that happens before the sum.
    """

    def __init__(self, optimizer, gradient_predivide_factor=1.0):  # pylint: disable=super-init-not-called
        self._optimizer = optimizer
        self._predivide = gradient_predivide_factor
        # Scaling once, where the optimizer scales anyway, costs nothing.
        self._optimizer.rescale_grad *= gradient_predivide_factor / group.size()

    def __getattr__(self, name):
        if name == "_optimizer":  # not there yet while it is being unpickled
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    def unwrap(self):
        """The optimizer as it was."""
        self._optimizer.rescale_grad /= self._predivide / group.size()
        return self._optimizer

    def create_state(self, index, weight):
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index, weight):
        return self._optimizer.create_state_multi_precision(index, weight)

    def _exchange(self, index, grad):
        if not isinstance(index, (list, tuple)):
            index, grad = [index], [grad]
        for i, each in zip(index, grad):
            group.kvstore().pushpull(f"optimizer:{i}", each, priority=-i, prescale=1 / self._predivide)

    def update(self, index, weight, grad, state):
        self._exchange(index, grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index, weight, grad, state):
        self._exchange(index, grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr):
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult):
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult):
        self._optimizer.set_wd_mult(args_wd_mult)
