"""torch.distributed over Gloo: asynchronous all_reduce per tensor, then wait for all.

RANK, SIZE; GLOO_STORE, a folder that all ranks see; GLOO_SOCKET_IFNAME.
"""
import os

import torch
import torch.distributed as dist

import workload


class TorchTensors:
    def __init__(self, _, counts):
        self.tensors = [torch.zeros(count) for count in counts]

    def fill(self, value):
        for tensor in self.tensors:
            tensor.fill_(value)

    def equals(self, value):
        return all(bool((tensor == value).all()) for tensor in self.tensors)

    def barrier(self):
        dist.barrier()

    def allreduce(self):
        for pending in [dist.all_reduce(tensor, async_op=True) for tensor in self.tensors]:
            pending.wait()


asked = workload.parse_options()
torch.set_num_threads(1)
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["SIZE"])
dist.init_process_group("gloo", init_method=f"file://{os.environ['GLOO_STORE']}/torch", rank=RANK,
                        world_size=SIZE)
workload.measure(asked, RANK, SIZE, TorchTensors)
dist.barrier()
