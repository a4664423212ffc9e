"""MXNet's own parameter server: pushpull per key on a `dist_sync` store, then waitall.

The role (scheduler, server, worker) comes from DMLC_ROLE; the first two end inside `create`.
"""
import mxnet as mx

import workload
from mxnet_tensors import Tensors


class StoreTensors(Tensors):
    store = None

    def __init__(self, series, counts):
        super().__init__(counts)
        self.keys = [f"{series}.{i}" for i in range(len(counts))]
        for key, array in zip(self.keys, self.arrays):
            self.store.init(key, mx.nd.zeros_like(array))
        mx.nd.waitall()

    def barrier(self):
        self.store._barrier()  # pylint: disable=protected-access

    def allreduce(self):
        for i, array, priority in self.with_priorities():
            self.store.pushpull(self.keys[i], array, out=array, priority=priority)
        mx.nd.waitall()


StoreTensors.store = mx.kv.create("dist_sync")
asked = workload.parse_options()
workload.measure(asked, StoreTensors.store.rank, StoreTensors.store.num_workers, StoreTensors)
