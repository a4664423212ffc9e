"""How workers end, well or badly: everybody learns of it in bounded time, nobody hangs."""

import os
import re
import signal
import time

import pytest

# Far above what is needed: a bound against hanging, not a measurement.
SOON = 60


def start_ending(start, name, size=2, **options):
    return start(size, "endings.py", name, **options)


@pytest.mark.parametrize("name", ["finish", "finish_with_work_in_flight", "finish_at_different_times",
                                  "loader_workers", "unrelated_thread", "other_program", "closed"])
def test_ends_well(start, name):
    start_ending(start, name).succeed()


def test_a_rank_that_leaves_early_is_named(start):
    stayed, left = start_ending(start, "leave_early").wait()
    assert left.code == 0, left.text
    assert stayed.code not in (0, None), stayed.text
    assert "rank 1" in stayed.err and "CollectiveError" in stayed.err, stayed.text


def test_an_uncaught_exception_is_told_to_the_others(start):
    other, raising = start_ending(start, "uncaught").wait()
    assert raising.code == 1 and "ValueError: boom" in raising.err, raising.text
    assert other.code not in (0, None), other.text
    assert "rank 1" in other.err and "ValueError: boom" in other.err, other.text


def test_an_exit_code_is_kept(start):
    other, leaving = start_ending(start, "exit_with_3").wait()
    assert leaving.code == 3, leaving.text
    assert other.code not in (0, None) and "rank 1" in other.err, other.text


def test_an_exit_code_is_told_to_the_others_by_the_runner(start):
    script = os.path.join(os.path.dirname(__file__), "scripts", "endings.py")
    other, leaving = start(2, "-m", "pushpull", script, "exit_with_3").wait()
    assert leaving.code == 3, leaving.text
    assert other.code not in (0, None) and "it ended with exit code 3" in other.err, other.text


def test_a_rank_that_vanishes_is_named(start):
    other, gone = start_ending(start, "exit_at_once").wait()
    assert gone.code == 7
    assert other.code == 75 and "rank 1" in other.err, other.text
    assert "CollectiveError" in other.err, other.text


def test_an_exception_in_a_thread_that_used_the_store(start):
    other, raising = start_ending(start, "uncaught_in_thread").wait()
    assert "rank 1" in other.out and "boom in a thread" in other.out, other.text
    assert "ValueError: boom in a thread" in raising.err, raising.text


def test_room_for_errors_is_made_while_nobody_reads_them(start):
    outcome = start(1, "room_for_errors.py", 500).succeed()[0]
    assert "500 rounds" in outcome.out


@pytest.mark.parametrize("name", ["unread_failure", "failure_kept_over_a_fork"])
def test_a_failure_that_nobody_reads_is_not_success(start, name):
    for outcome in start_ending(start, name).wait():
        assert outcome.code == 1, outcome.text
        assert "an exchange failed and nobody read its result" in outcome.err, outcome.text
        assert "unread" in outcome.err


def test_a_failure_that_was_read_is_the_scripts_business(start):
    for outcome in start_ending(start, "read_failure").wait():
        assert outcome.code == 0, outcome.text
        assert "error after" in outcome.out


@pytest.mark.parametrize("backend, victim", [("gloo", 0), ("gloo", 1), ("gloo", 2),
                                             ("gloo-redis", 1)])
def test_kill_in_the_middle_of_100_megabytes(start, backend, victim):
    group = start_ending(start, "train_for_ever", size=3, backend=backend)
    for rank in range(3):
        group.wait_for(rank, "training", timeout=120)
    time.sleep(0.3)
    group.processes[victim].kill()
    outcomes = group.wait(timeout=SOON)
    assert outcomes[victim].code == -signal.SIGKILL
    for rank, outcome in enumerate(outcomes):
        if rank == victim:
            continue
        assert outcome.code == 75, outcome.text
        said = re.search(r"^error: (.*)$", outcome.out, re.MULTILINE)
        assert said and f"rank {victim}" in said.group(1), outcome.text
        # Every later call says the same, at once.
        assert outcome.out.count(said.group(1)) == 4, outcome.text


@pytest.mark.parametrize("name", ["finish", "finish_with_work_in_flight"])
def test_ends_well_under_mpirun(start, name):
    start_ending(start, name, backend="mpi").succeed()


def test_an_uncaught_exception_under_mpirun(start):
    job = start_ending(start, "uncaught", backend="mpi").wait()[0]
    assert job.code not in (0, None) and "ValueError: boom" in job.err, job.text


def test_kill_under_mpirun(start):
    """mpirun itself ends the others; the job must not outlive that, nor end as if all were well."""
    group = start_ending(start, "train_for_ever", backend="mpi")
    group.wait_for(0, "training", count=2, timeout=120)
    pids = re.findall(r"^pid (\d+)$", group.output(0), re.MULTILINE)
    os.kill(int(pids[1]), signal.SIGKILL)
    job = group.wait(timeout=SOON)[0]
    assert job.code not in (0, None), job.text


def test_kill_with_live_loader_workers(start):
    group = start_ending(start, "train_with_loader_workers")
    for rank in range(2):
        group.wait_for(rank, "training", timeout=120)
    group.processes[1].kill()
    survivor = group.wait(timeout=SOON)[0]
    assert survivor.code == 75 and "rank 1" in survivor.err, survivor.text


def test_a_stopped_rank_is_noticed(start):
    group = start_ending(start, "train_for_ever", env={"PUSHPULL_HEARTBEAT_TIMEOUT": "2s"})
    for rank in range(2):
        group.wait_for(rank, "training", timeout=120)
    group.processes[1].kill(signal.SIGSTOP)
    group.processes[0].wait(timeout=SOON)
    survivor = group.wait(timeout=0)[0]
    assert survivor.code == 75 and "rank 1" in survivor.err, survivor.text


def test_fork(start):
    for rank, outcome in enumerate(start_ending(start, "fork_after_failure").succeed()):
        errors = re.findall(r"error after .*? s: (.*)", outcome.out)
        assert len(errors) == 4, outcome.text
        for error in errors[:3]:
            assert re.fullmatch(
                rf"the store \(dist_sync_gloo, rank {rank}\) belongs to the parent process \d+: a forked "
                r"child cannot use it", error)
        assert "unread" in errors[3]
        assert outcome.out.endswith("[2.0, 2.0, 2.0]\n")


def test_a_store_made_after_the_fork(start):
    for outcome in start_ending(start, "fork_before_the_store").succeed():
        assert "[2.0, 2.0, 2.0]" in outcome.out, outcome.text


def test_a_store_that_the_child_makes_itself(start):
    for outcome in start_ending(start, "store_of_the_child").succeed():
        assert "child [2.0, 2.0, 2.0]" in outcome.out, outcome.text
        assert "parent [2.0, 2.0, 2.0]" in outcome.out, outcome.text


def test_naive_engine(start):
    group = start_ending(start, "naive_engine", env={"MXNET_ENGINE_TYPE": "NaiveEngine"})
    for outcome in group.succeed():
        assert re.search("error after .*mismatch", outcome.out) and "fine" in outcome.out, outcome.text


def test_naive_engine_with_different_orders_ends(start):
    group = start_ending(start, "naive_engine_in_other_order",
                         env={"MXNET_ENGINE_TYPE": "NaiveEngine", "PUSHPULL_STALL_TIMEOUT": "3s",
                              "PUSHPULL_STALL_WARNING": "1s"})
    for outcome in group.wait(timeout=60):
        assert outcome.code is not None and "error after" in outcome.out, outcome.text


@pytest.mark.parametrize("engine", ["ThreadedEngine", "ThreadedEnginePerDevice"])
def test_one_thread_per_engine_pool(start, engine):
    group = start_ending(start, "one_engine_thread",
                         env={"MXNET_ENGINE_TYPE": engine, "MXNET_CPU_WORKER_NTHREADS": "1",
                              "MXNET_CPU_PRIORITY_NTHREADS": "1"})
    group.succeed()
