"""Horovod's MXNet plug-in: allreduce_ (sum, in place) per tensor, then waitall."""
import horovod.mxnet as hvd
import mxnet as mx

import workload
from mxnet_tensors import Tensors


class HorovodTensors(Tensors):
    def __init__(self, series, counts):
        super().__init__(counts)
        self.series = series
        self.token = mx.nd.ones((1,))

    def barrier(self):
        hvd.allreduce(self.token, average=False, name="barrier").wait_to_read()

    def allreduce(self):
        for i, array, priority in self.with_priorities():
            hvd.allreduce_(array, average=False, name=f"{self.series}.{i}", priority=priority)
        mx.nd.waitall()


asked = workload.parse_options()
hvd.init()
workload.measure(asked, hvd.rank(), hvd.size(), HorovodTensors)
hvd.shutdown()
