"""A script that knows nothing of pushpull."""

import os
import pickle
import sys

import helper_of_unchanged
import mxnet as mx


class Point:
    pass


kv = mx.kv.create(sys.argv[1])
array = mx.nd.ones((2,))
kv.pushpull("key", array)
assert __name__ == "__main__" and sys.modules["__main__"].Point is Point
assert type(pickle.loads(pickle.dumps(Point()))) is Point
print(kv.type, array.asnumpy().tolist(), sys.argv[1:], os.path.basename(__file__),
      helper_of_unchanged.NAME, [name for name in os.environ if name.startswith("DMLC")], flush=True)
if "fail" in sys.argv:
    raise KeyError("wrong")
