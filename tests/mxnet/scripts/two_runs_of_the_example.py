"""Runs gluon_digits.py twice in one process, as importing mxnet takes seconds: 20 steps with the parameters saved to
{rank}.npz, then to its accuracy."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples"))
import gluon_digits  # noqa: E402

for arguments in (["--steps", "20", "--save", "{rank}.npz"], ["--epochs", "8"]):
    sys.argv[1:] = arguments
    gluon_digits.main()
