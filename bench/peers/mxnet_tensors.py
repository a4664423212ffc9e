"""MXNet tensors for `workload.measure`; the library under test adds `allreduce`, `barrier`."""
import mxnet as mx


class Tensors:
    def __init__(self, counts):
        self.arrays = [mx.nd.zeros((count,)) for count in counts]
        mx.nd.waitall()

    def fill(self, value):
        for array in self.arrays:
            array[:] = value
        mx.nd.waitall()

    def equals(self, value):
        return all(bool((array == value).min().asscalar()) for array in self.arrays)

    def with_priorities(self):
        """(index, tensor, priority): the first layer's gradient comes last and is most urgent."""
        last = len(self.arrays) - 1
        return [(i, array, i - last) for i, array in enumerate(self.arrays)]
