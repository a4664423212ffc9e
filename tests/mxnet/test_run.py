"""python -m pushpull: scripts that were not written for it."""

import pathlib

SCRIPTS = pathlib.Path(__file__).resolve().parent / "scripts"
UNCHANGED = SCRIPTS / "unchanged.py"


def test_a_script_as_it_is(start):
    group = start(2, "-m", "pushpull", UNCHANGED, "dist_sync_gloo", "--as", "-x", "", "a b",
                  env={"DMLC_ROLE": "server", "DMLC_PS_ROOT_URI": "10.0.0.1", "DMLC_NUM_WORKER": "2"})
    for outcome in group.succeed():
        assert outcome.out == ("dist_sync_gloo [2.0, 2.0] ['dist_sync_gloo', '--as', '-x', '', 'a b'] "
                               "unchanged.py helper []\n")
        assert ("pushpull: ignoring DMLC_NUM_WORKER, DMLC_PS_ROOT_URI, DMLC_ROLE: they belong to MXNet's "
                "parameter server, which a collective store does not use") in outcome.err


def test_a_script_that_asks_for_another_store(start):
    group = start(2, "-m", "pushpull", "--as", "dist_device_sync", "--as", "horovod", UNCHANGED,
                  "dist_device_sync")
    for outcome in group.succeed():
        assert outcome.out.startswith("dist_sync_gloo [2.0, 2.0]"), outcome.text


def test_what_public_examples_do(start):
    """Module, Trainer with and without a store, a language model: equal parameters on all workers."""
    group = start(2, "-m", "pushpull", "--as", "dist_sync,device", SCRIPTS / "like_public_examples.py")
    first, second = group.succeed()
    lines = first.out.splitlines()
    assert [line.rsplit(" ", 1)[0] for line in lines] == [
        "module", "trainer", "trainer", "trainer without a store", "language model"], first.text
    assert lines[1] == lines[2] and first.out == second.out, second.text


def test_a_script_for_horovod_and_byteps(start):
    group = start(2, "-m", "pushpull", "--as", "horovod,byteps", SCRIPTS / "written_for_horovod.py")
    for outcome in group.succeed():
        assert outcome.out.splitlines() == [
            "alltoall() of horovod.mxnet is not supported by pushpull; allgather() gives every worker all "
            "parts, each takes its own",
            "a process set of horovod.mxnet is not supported by pushpull; all workers form one group",
            "compression by compressor of byteps.mxnet is not supported by pushpull; fp16 and bf16 are "
            "(Compression)",
            "dist_async cannot be replaced: a collective store is synchronous, all workers take every step "
            "together",
            "the script asks for MXNet's parameter server (kvstore dist_sync): run it by python -m pushpull "
            "--as dist_sync, and a collective store takes its place",
            "done"], outcome.text


def test_a_module(start):
    group = start(1, "-m", "pushpull", "-m", "unchanged", "dist_sync_gloo",
                  env={"PYTHONPATH": _with_scripts()})
    assert "dist_sync_gloo [1.0, 1.0] ['dist_sync_gloo'] unchanged.py helper" in group.succeed()[0].out


def _with_scripts():
    import os
    return os.pathsep.join([str(SCRIPTS), os.environ.get("PYTHONPATH", "")])


def test_a_script_that_fails(start):
    outcome = start(1, "-m", "pushpull", UNCHANGED, "dist_sync_gloo", "fail").wait()[0]
    assert outcome.code == 1 and outcome.err.rstrip().endswith("KeyError: 'wrong'"), outcome.text


def test_wrong_use(start):
    outcome = start(1, "-m", "pushpull", "no_such_script.py").wait()[0]
    assert outcome.code == 2 and "no_such_script.py does not exist" in outcome.err, outcome.text
    outcome = start(1, "-m", "pushpull").wait()[0]
    assert outcome.code == 2 and "usage:" in outcome.err, outcome.text
    outcome = start(1, "-m", "pushpull", "--as", "dist_async", UNCHANGED).wait()[0]
    assert outcome.code == 2, outcome.text
    assert ("--as: dist_async cannot be replaced: a collective store is synchronous, all workers take every "
            "step together") in outcome.err


def test_version(start):
    outcome = start(1, "-m", "pushpull", "--version").wait()[0]
    assert outcome.code == 0 and outcome.out.startswith("pushpull 0."), outcome.text
