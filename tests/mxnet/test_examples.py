"""The examples beside gluon_digits.py, and that all ways of training end alike."""

import json
import pathlib
import re

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def test_module(start):
    out = start(2, EXAMPLES / "module_digits.py").succeed()[0].out
    accuracy = re.search(r"^test accuracy: (0\.9\d\d)$", out, re.MULTILINE)
    assert accuracy and float(accuracy.group(1)) >= 0.97, out
    assert "parameters are identical on all 2 workers" in out


def test_checkpoint_and_resume(start, tmp_path):
    command = [EXAMPLES / "checkpoint_resume.py", "--checkpoint", tmp_path / "saved", "--fail-in-epoch", 3]
    survivor, lost = start(2, *command).wait()
    assert lost.code == 1, lost.text
    assert survivor.code == 75 and "rank 1" in survivor.err, survivor.text
    out = start(2, *command).succeed()[0].out
    assert "going on after epoch 2" in out, out
    accuracy = re.search(r"^test accuracy: (0\.9\d\d)$", out, re.MULTILINE)
    assert accuracy and float(accuracy.group(1)) >= 0.95, out
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "epoch-8.params", "epoch-8.states", "newest"]


def test_all_ways_end_alike(start):
    """A thin part of convergence.py's table, see docs/mxnet.md."""
    group = start(2, "convergence.py", "results-{rank}", "--seeds", "1", "--devices", "2", "--epochs", "8",
                  "--ways", "trainer:fp32,module:fp32,distributed:fp16,raw:bf16")
    group.succeed()
    results = [json.loads(line) for line in (group.folder / "results-0").read_text().splitlines()]
    accuracies = [result["accuracy"] for result in results]
    assert len(results) == 4 and min(accuracies) >= 0.95, results
    assert max(accuracies) - min(accuracies) <= 0.025, results
