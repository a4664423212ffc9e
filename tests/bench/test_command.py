"""pushpull bench with real workers: one table however it was started, and nothing wrong goes unnoticed."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess

import pytest

from launching import ROOT, Launcher, pushpull_command, wait_until

PLANTED = ROOT / "build" / "release" / "tests" / "bench" / "modules"
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]
SMALL = ["--sizes", "4,1KiB,64KiB", "--iters", "3", "--warmup", "1"]


@pytest.fixture
def launcher():
    instance = Launcher()
    yield instance
    instance.close()


def shape_of(table):
    """The table with its figures left out."""
    lines = table.splitlines()
    rows = [re.sub(r"\d+(\.\d+)?( us| ms| s)?", "#", line).split() for line in lines[2:]]
    return lines[:2], rows


def started_by_hand(launcher, arguments, environments):
    """-> outputs of ranks that find each other by their environment."""
    ranks = [launcher.start("bench", *arguments, env=environment) for environment in environments]
    outputs = [process.communicate(timeout=60) for process in ranks]
    assert [process.returncode for process in ranks] == [0] * len(ranks), outputs
    return [out.decode() for out, _ in outputs]


def test_the_same_table_however_it_was_started(launcher, tmp_path):
    own = launcher.run("bench", "-n", 2, *SMALL)
    assert own.returncode == 0, own.err
    expected = shape_of(own.out)
    assert len(expected[1]) == 3 and all(row[-1] == "right" for row in expected[1])

    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2",
              pushpull_command(), "bench", *SMALL]
    meet = {"PUSHPULL_RENDEZVOUS": f"file://{tmp_path}/mpirun"}
    done = subprocess.run(mpirun, env=launcher.environment(meet), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert shape_of(done.stdout) == expected

    meet = {"PUSHPULL_RENDEZVOUS": f"file://{tmp_path}/slurm"}
    slurm = [{**meet, "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2",
              "SLURM_LOCALID": str(rank)} for rank in range(2)]
    first, second = started_by_hand(launcher, SMALL, slurm)
    assert shape_of(first) == expected and second == ""

    meet = {"PUSHPULL_RENDEZVOUS": f"file://{tmp_path}/plain"}
    plain = [{**meet, "PUSHPULL_RANK": str(rank), "PUSHPULL_SIZE": "2"} for rank in range(2)]
    first, second = started_by_hand(launcher, SMALL, plain)
    assert shape_of(first) == expected and second == ""


def test_the_mpi_backend_under_mpirun(launcher):
    own = launcher.run("bench", "-n", 2, "--backend", "mpi", *SMALL)
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2",
              pushpull_command(), "bench", "--backend", "mpi", *SMALL]
    done = subprocess.run(mpirun, env=launcher.environment(), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    assert (own.returncode, done.returncode) == (0, 0), own.err + done.stderr
    assert shape_of(own.out) == shape_of(done.stdout)


@pytest.fixture
def planted():
    assert (PLANTED / "libpushpull_backend_planted.so").exists()
    return {"PUSHPULL_BACKEND_PATH": str(PLANTED), "PUSHPULL_LOCAL": "backend"}


def test_a_planted_wrong_sum_is_found(launcher, planted, tmp_path):
    file = tmp_path / "results.json"
    done = launcher.run("bench", "-n", 3, "--backend", "planted", "--json", file, *SMALL, env=planted)
    assert done.returncode == 1, done.err
    rows = done.out.splitlines()[2:]
    assert [row.split("  ")[-1].strip() for row in rows] == ["right", "right", "WRONG on rank 2"]
    # Element 0 of rank r is r + 1, so the sum is 6.
    assert "pushpull bench: rank 2: tensor 0 of 1: element 0 is 7 instead of 6" in done.err
    results = json.loads(file.read_text())["results"]
    assert [result["correct"] for result in results] == [True, True, False]


def test_a_planted_wrong_sum_is_found_through_mxnet(launcher, planted):
    pytest.importorskip("mxnet", reason="mxnet is not installed")
    done = launcher.run("bench", "-n", 2, "--backend", "planted", "--level", "mxnet", *SMALL, env=planted)
    assert done.returncode == 1, done.err
    assert [row.split("  ")[-1].strip() for row in done.out.splitlines()[2:]] == [
        "right", "right", "WRONG on rank 1"]
    assert "rank 1: tensor 0 of 1: element 0 is wrong" in done.err


def test_the_slowest_rank_is_named(launcher, planted):
    done = launcher.run("bench", "-n", 2, "--backend", "planted", "--sizes", "64KiB", "--iters", 5, env=planted)
    assert re.search(r" 1 in [345]/5 ", done.out), done.out  # 100 ms late


def test_broadcasts_of_that_backend_are_right(launcher, planted):
    done = launcher.run("bench", "-n", 3, "--backend", "planted", "--op", "broadcast", *SMALL, env=planted)
    assert done.returncode == 0, done.out + done.err


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(launcher, dtype):
    done = launcher.run("bench", "-n", 3, "--model", "tiny", "--dtype", dtype, "--iters", 2, "--warmup", 0)
    assert done.returncode == 0 and done.out.count("  right\n") == 1, done.out + done.err


@pytest.mark.parametrize("more", [["--fused"], ["--latency"], ["--op", "broadcast"]])
def test_every_mode(launcher, more):
    done = launcher.run("bench", "-n", 2, "--model", "tiny", "--iters", 3, *more)
    assert done.returncode == 0 and done.out.count("  right\n") == 1, done.out + done.err


@pytest.mark.parametrize("dtype, operation", [("float16", "pushpull"), ("bfloat16", "broadcast")])
def test_through_mxnet(launcher, tmp_path, dtype, operation):
    pytest.importorskip("mxnet", reason="mxnet is not installed")
    file = tmp_path / "results.json"
    done = launcher.run("bench", "-n", 2, "--level", "mxnet", "--model", "tiny", "--dtype", dtype, "--op",
                        operation, "--iters", 3, "--json", file)
    assert done.returncode == 0 and done.out.count("  right\n") == 1, done.out + done.err
    written = json.loads(file.read_text())
    assert written["context"]["level"] == "mxnet"
    assert written["results"][0]["ranks"] == 2 and written["results"][0]["hosts"] == 1
    assert len(written["context"]["cases"][0]["iterations_s"]) == 3


def test_one_worker(launcher):
    done = launcher.run("bench", "-n", 1, "--backend", "self", *SMALL)
    assert done.returncode == 0 and done.out.count("  right\n") == 3, done.err


def test_two_workers_where_nothing_says_how_many(launcher):
    done = launcher.run("bench", *SMALL)
    assert ": 2 ranks on 1 host" in done.out


def test_a_killed_worker_ends_it_and_is_named(launcher):
    process = launcher.start("bench", "-n", 2, "--model", "resnet50", "--iters", 100000)
    process.stdout.readline()  # the workers have met

    def second_rank():
        for pid in launcher.alive():
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"PUSHPULL_RANK=1" in environment:
                return pid
        return None

    os.kill(wait_until(second_rank), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL
    assert re.search(rb"error: rank 1 \(host .*, pid \d+\) ", err), err
    launcher.assert_nothing_left()


def test_a_bar_on_a_terminal(launcher, planted):
    terminal, other_end = pty.openpty()
    process = launcher.start("bench", "-n", 2, "--backend", "planted", "--sizes", "64KiB", "--iters", 30,
                             env=planted, stderr=other_end)
    os.close(other_end)
    seen = bytearray()

    def bar_seen():
        try:
            seen.extend(os.read(terminal, 65536))
        except OSError:  # the last of its writers has ended
            return True
        return re.search(rb"\[#+ *\] \d+/30 iterations, 64KiB", seen)

    wait_until(bar_seen, 60)
    assert re.search(rb"\[#+ *\] \d+/30 iterations, 64KiB", seen), bytes(seen)
    process.kill()
    os.close(terminal)


def test_no_bar_elsewhere(launcher, planted):
    done = launcher.run("bench", "-n", 2, "--backend", "planted", "--sizes", "64KiB", "--iters", 22, env=planted)
    assert "iterations, " not in done.err


def test_wrong_use(launcher, tmp_path):
    def refusal(*arguments):
        done = launcher.run("bench", *arguments)
        assert (done.returncode, done.out) == (2, "")
        return done.err

    assert "flag --dtype: unknown type 'half'; known are float32" in refusal("--dtype", "half")
    assert "unknown model 'resnet51'" in refusal("--model", "resnet51")
    assert "bench takes no command; leave out 'python'" in refusal("--", "python")
    assert "unknown flag '--size'; did you mean '--sizes'?" in refusal("--size=4")
    assert "unknown backend 'glue'" in refusal("--backend", "glue")
    done = launcher.run("bench", *SMALL, "--json", tmp_path / "no" / "such.json")
    assert done.returncode == 1 and "cannot write" in done.err


def test_a_list_in_this_folder_is_handed_on_by_its_full_name(launcher, tmp_path):
    (tmp_path / "list.txt").write_text("10\n20\n")
    done = launcher.run("bench", "-n", 2, "--dry-run", "--model", "list.txt", cwd=tmp_path)
    assert done.returncode == 0 and f"--model {tmp_path}/list.txt" in done.out, done.err


def test_a_dry_run(launcher):
    done = launcher.run("bench", "-n", 2, "--dry-run", *SMALL)
    assert done.returncode == 0 and "--sizes 4,1KiB,64KiB" in done.out
