"""Under a real Slurm: srun inside allocations, scripts for sbatch, and processes started by srun alone.
Controller and two of the nodes' daemons are real; the nodes are hosts of a lab."""

import json
import os
import re
import shlex
import signal
import sys
import time

import pytest

from launching import ROOT, Launcher, lines_of, pushpull_command, wait_until

pytestmark = pytest.mark.cluster

WHO = "echo $PUSHPULL_RANK/$PUSHPULL_SIZE $(hostname) $PUSHPULL_LOCAL_RANK/$PUSHPULL_LOCAL_SIZE"


def run(slurm, *arguments, salloc=("-N4", "-n5"), env=None, timeout=150):
    """`pushpull` inside an allocation of its own."""
    return slurm.run(["salloc", "-Q", *salloc, pushpull_command(), *map(str, arguments)], env=env,
                     timeout=timeout)


def submit(slurm, script, *options):
    """-> (job id, its output's file)."""
    path = slurm.folder / f"job-{time.monotonic_ns()}.sh"
    path.write_text(script)
    out = f"{path}.out"
    done = slurm.run(["sbatch", "--parsable", "-o", out, *options, str(path)])
    assert done.returncode == 0, done.stderr
    return int(done.stdout.strip()), out


def test_workers_of_an_allocation(slurm):
    done = run(slurm, "run", "--", "sh", "-c", WHO)
    assert done.returncode == 0, done.stderr
    said = [lines_of(done.stdout, rank)[0].split() for rank in range(5)]
    assert [words[0] for words in said] == [f"{rank}/5" for rank in range(5)]
    assert {words[1] for words in said} == {"host0", "host1", "host2", "host3"}
    assert re.search(r"5 workers in Slurm job \d+, backend gloo, started by srun", done.stderr)


def test_fewer_and_more_workers_than_tasks(slurm):
    done = run(slurm, "run", "-n", 2, "--", "sh", "-c", WHO)
    assert done.returncode == 0, done.stderr
    assert lines_of(done.stdout, 1)[0].startswith("1/2 ")
    done = run(slurm, "run", "-n", 9, "--", "true")
    assert done.returncode == 2
    assert "9 workers (flag --workers) do not fit: the Slurm allocation is for 5 tasks" in done.stderr


def test_awkward_arguments_and_environment(slurm):
    awkward = ["a b", "", "it's", '"quoted"', "$HOME", "new\nline", "a=b", "a,b", "größer"]
    program = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    env = {"MY_CHOICE": "one\ntwo, 'x'", "DMLC_ROLE": "server", "MY_SECRET": "hush"}
    done = run(slurm, "run", "-n", 2, "--", sys.executable, "-c", program, *awkward, env=env)
    assert done.returncode == 0, done.stderr
    arguments, environment = json.loads(lines_of(done.stdout, 1)[0])
    assert arguments == awkward
    assert environment["MY_CHOICE"] == env["MY_CHOICE"]
    assert "DMLC_ROLE" not in environment and "PUSHPULL_LAUNCH_TOKEN" not in environment
    done = run(slurm, "run", "-n", 2, "--forward", "MY_CHOICE", "--", sys.executable, "-c", program,
               env=env)
    assert done.returncode == 0, done.stderr
    _, environment = json.loads(lines_of(done.stdout, 1)[0])
    assert environment["MY_CHOICE"] == env["MY_CHOICE"] and "MY_SECRET" not in environment


@pytest.mark.parametrize("flags", [["--backend", "gloo"], ["--backend", "mpi"],
                                   ["--backend", "mpi", "--engine", "mpirun"],
                                   ["--backend", "gloo-redis", "--set", "redis.start=true"], ["file"]],
                         ids=["gloo", "mpi", "mpirun", "gloo-redis", "file"])
def test_ranks_exchange(slurm, flags, tmp_path):
    if flags == ["file"]:
        flags = ["--rendezvous", f"file://{tmp_path}/meet"]
    done = run(slurm, "check", *flags, "--json")
    rows = json.loads(done.stdout)["results"]
    sums = [row for row in rows if row["found"] == "5 ranks summed 100000 values"]
    assert len(sums) == 1 and sums[0]["health"] == "pass", (rows, done.stderr)
    assert done.returncode == 0


def test_failure_is_named_with_its_host(slurm):
    done = run(slurm, "run", "--", "sh", "-c",
               "test $PUSHPULL_RANK = 4 && { echo broken >&2; exit 7; }; exec sleep 60")
    assert done.returncode == 7
    assert re.search(r"rank 4 on host host\d \(pid \d+\) failed first: exit code 7", done.stderr)
    assert "  [4] broken" in done.stderr


def test_script_for_sbatch(slurm, tmp_path):
    awkward = "it's \"$HOME\" "
    made = slurm.run([pushpull_command(), "run", "--engine", "slurm", "-n", "4", "--starter-args",
                      "--nodes=2 --comment 'two words'", "-c", str(ROOT / "configs" / "slurm.yaml"),
                      "--set", "tuning.chunk_bytes=2KiB", "--", "sh", "-c",
                      f"echo $PUSHPULL_RANK $PUSHPULL_CHUNK_BYTES {shlex.quote(awkward)}"])
    assert made.returncode == 0, made.stderr
    assert "#SBATCH --ntasks=4\n#SBATCH --nodes=2\n" in made.stdout
    job, out = submit(slurm, made.stdout)
    assert slurm.wait_for_job(job)[0] == "COMPLETED", open(out).read()
    said = open(out).read()
    for rank in range(4):
        assert lines_of(said, rank) == [f"{rank} 2KiB {awkward}"], said


def test_exit_code_of_a_batch_job(slurm):
    made = slurm.run([pushpull_command(), "run", "--engine", "slurm", "-n", "2", "--", "sh", "-c",
                      "exit 3"])
    job, out = submit(slurm, made.stdout)
    assert slurm.wait_for_job(job) == ("FAILED", "3:0"), open(out).read()


def test_cancelled_job_leaves_nothing(slurm):
    marked = Launcher()
    try:
        made = slurm.run([pushpull_command(), "run", "--engine", "slurm", "-n", "3", "--", "sh", "-c",
                          f"echo ready; exec sleep 300 # {marked.mark}"])
        job, out = submit(slurm, made.stdout, "--nodes=3")
        wait_until(lambda: os.path.exists(out) and open(out).read().count("] ready") == 3, 60)
        slurm.run(["scancel", str(job)])
        marked.assert_nothing_left(15)
        assert slurm.wait_for_job(job)[0] == "CANCELLED"
    finally:
        marked.close()


@pytest.mark.parametrize("number", range(5))
def test_killed_launcher_leaves_nothing(slurm, number):
    marked = Launcher()
    try:
        script = (f"#!/bin/sh\n{pushpull_command()} run -- sh -c 'exec sleep 300 # {marked.mark}' &\n"
                  f"sleep 0.{3 * number}\nkill -9 $!\nsleep 60\n")
        job, _ = submit(slurm, script, "-n4", "-N2")
        wait_until(lambda: slurm.job_state(job)[0] == "RUNNING", 60)
        time.sleep(2)
        wait_until(lambda: not [pid for pid in marked.alive()
                                if b"exec sleep" in open(f"/proc/{pid}/cmdline", "rb").read()
                                and b"slurm_script" not in open(f"/proc/{pid}/cmdline", "rb").read()], 5)
        slurm.run(["scancel", str(job)])
        slurm.wait_for_job(job)
    finally:
        marked.close()


def exchange_by_hand():
    """A rank that nobody of ours started: finds out by itself who it is."""
    return [pushpull_command(), "check", "--part", "exchange"]


def test_srun_alone_starts_gloo_ranks(slurm, tmp_path):
    env = {"MXNET_KVSTORE_BACKEND": "gloo", "PUSHPULL_RENDEZVOUS": f"file://{tmp_path}/meet"}
    done = slurm.run(["srun", "-n3", "-N3", *exchange_by_hand()], env=env)
    assert done.stdout.count("3 ranks summed 100000 values") == 3, done.stderr + done.stdout


@pytest.mark.parametrize("mpi", ["pmix"])
def test_srun_alone_starts_mpi_ranks(slurm, mpi):
    env = {"MXNET_KVSTORE_BACKEND": "mpi", "OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24"}
    done = slurm.run(["srun", f"--mpi={mpi}", "-n3", "-N3", *exchange_by_hand()], env=env)
    assert done.stdout.count("3 ranks summed 100000 values") == 3, done.stderr + done.stdout


def test_one_of_three_never_trains_alone(slurm):
    done = slurm.run(["srun", "-n3", "-N1", *exchange_by_hand()],
                     env={"MXNET_KVSTORE_BACKEND": "gloo", "PUSHPULL_RANK": "0", "PUSHPULL_SIZE": "1"})
    assert done.returncode != 0
    assert "summed" not in done.stdout
    assert done.stderr.count("this process would train alone (rank 0 of 1)") == 3, done.stderr
    assert "SLURM_NTASKS=3" in done.stderr or "SLURM_STEP_NUM_TASKS=3" in done.stderr


def test_mpi_without_pmi_ends(slurm):
    # Nothing connects srun with Open MPI: it refuses by itself, or we see that it is alone.
    done = slurm.run(["srun", "--mpi=none", "-n3", "-N1", *exchange_by_hand()],
                     env={"MXNET_KVSTORE_BACKEND": "mpi"})
    assert done.returncode != 0
    assert "summed" not in done.stdout
    assert "would train alone" in done.stderr or "PMI support" in done.stderr, done.stderr


def test_digits_in_a_batch_job(slurm):
    made = slurm.run([pushpull_command(), "run", "--engine", "slurm", "-n", "4", "--starter-args",
                      "--nodes=2", "-c", str(ROOT / "configs" / "slurm.yaml"), "--", "python",
                      str(ROOT / "examples" / "gluon_digits.py")])
    job, out = submit(slurm, made.stdout)
    assert slurm.wait_for_job(job, 250)[0] == "COMPLETED", open(out).read()
    said = open(out).read()
    assert "parameters are identical on all 4 workers" in said
    assert float(said.split("test accuracy: ")[1].split()[0]) >= 0.97


def test_terminated_launcher(slurm):
    marked = Launcher()
    try:
        script = (f"#!/bin/sh\n{pushpull_command()} run -- sh -c 'echo ready; exec sleep 300 "
                  f"# {marked.mark}' &\nsleep 4\nkill -{int(signal.SIGTERM)} $!\nwait $!\n"
                  "echo code $?\n")
        job, out = submit(slurm, script, "-n2", "-N2")
        slurm.wait_for_job(job)
        assert "code 143" in open(out).read()
        marked.assert_nothing_left(10)
    finally:
        marked.close()
