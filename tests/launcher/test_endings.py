"""However a job ends, nothing of it is left: signals, daemons, closed pipes, a killed launcher."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from launching import lines_of, wait_until

PYTHON = sys.executable

# Says that it runs, and what it was sent.
SIGNAL_TELLER = """
import signal, sys, time
def tell(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(CODE)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, tell)
print("ready", flush=True)
time.sleep(60)
"""


def children_of(pid):
    return [int(child) for child in open(f"/proc/{pid}/task/{pid}/children").read().split()]


def read_until(process, text, count=1):
    seen = b""
    while seen.count(text.encode()) < count:
        chunk = os.read(process.stdout.fileno(), 65536)
        assert chunk, seen
        seen += chunk
    return seen.decode()


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_are_passed_on(launcher, engine, number, code):
    job = launcher.start("run", "-n", 2, "--engine", engine, "--", PYTHON, "-c",
                         SIGNAL_TELLER.replace("CODE", "9"))
    read_until(job, "ready", 2)
    job.send_signal(number)
    out, _ = job.communicate(timeout=30)
    assert out.decode().count(f"got {number.name}") == 2
    assert job.returncode == code
    launcher.assert_nothing_left()


def test_workers_that_ask_for_a_restart_are_heard(launcher):
    job = launcher.start("run", "-n", 2, "--", PYTHON, "-c", SIGNAL_TELLER.replace("CODE", "75"))
    read_until(job, "ready", 2)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=30)
    assert job.returncode == 75


def test_workers_that_end_well_after_term(launcher):
    job = launcher.start("run", "-n", 2, "--", PYTHON, "-c", SIGNAL_TELLER.replace("CODE", "0"))
    read_until(job, "ready", 2)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=30)
    assert job.returncode == 0


STUBBORN = "trap '' INT TERM HUP; echo ready; while :; do sleep 1; done"


def test_second_interrupt_kills_at_once(launcher, engine):
    job = launcher.start("run", "-n", 2, "--engine", engine, "--grace", "60s", "--", "sh", "-c", STUBBORN)
    read_until(job, "ready", 2)
    job.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert job.poll() is None
    job.send_signal(signal.SIGINT)
    _, err = job.communicate(timeout=20)
    assert job.returncode == 130
    assert "killing the workers" in err.decode()
    launcher.assert_nothing_left()


def test_one_interrupt_kills_after_the_grace_time(launcher, engine):
    job = launcher.start("run", "-n", 2, "--engine", engine, "--grace", "1s", "--", "sh", "-c", STUBBORN)
    read_until(job, "ready", 2)
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=20)
    assert job.returncode == 130
    launcher.assert_nothing_left()


# A grandchild that leaves session, process group and parent.
DAEMON = 'setsid sh -c "sleep 300 & echo daemon >&2; wait" >/dev/null 2>&1 & '


def test_daemons_are_found_and_ended(launcher, engine):
    done = launcher.run("run", "-n", 2, "--engine", engine, "--", "sh", "-c", DAEMON + "sleep 0.3")
    assert done.returncode == 0, done.err
    if engine == "local":
        assert "ended what the workers left behind: " in done.err
    launcher.assert_nothing_left(1)


def test_daemons_that_ignore_term_are_ended(launcher):
    script = "(trap '' TERM; setsid sh -c 'while :; do sleep 1; done') >/dev/null 2>&1 & sleep 0.3"
    done = launcher.run("run", "-n", 2, "--", "sh", "-c", script)
    assert done.returncode == 0, done.err
    launcher.assert_nothing_left(1)


def test_daemon_that_keeps_the_output_open_does_not_hold_up_the_job(launcher, engine):
    done = launcher.run("run", "-n", 2, "--engine", engine, "--", "sh", "-c", "setsid sleep 300 & exit 0",
                        timeout=20)
    assert done.returncode == 0
    launcher.assert_nothing_left(1)


def test_children_of_a_killed_worker_die_with_it(launcher):
    # They hold its sockets: as long as they live, its peers do not notice.
    script = ("if test $PUSHPULL_RANK = 0; then sleep 200 & echo child $! >&2; kill -9 $$; fi;"
              "for i in $(seq 50); do sleep 0.1; done")
    job = launcher.start("run", "-n", 2, "--grace", "20s", "--", "sh", "-c", script)
    line = job.stderr.readline().decode()
    while "child" not in line:
        line = job.stderr.readline().decode()
    child = int(line.split()[-1])
    wait_until(lambda: child not in launcher.alive(), 1.5)
    assert job.poll() is None
    job.communicate(timeout=30)
    assert job.returncode == 137


@pytest.mark.parametrize("victim", ["outer", "inner"])
def test_killed_launcher_takes_everything_along(launcher, engine, victim):
    rounds = 10 if engine == "local" else 3
    for round_number in range(rounds):
        job = launcher.start("run", "-n", 2, "--engine", engine, "--", "sh", "-c",
                             DAEMON + "exec sleep 300", stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        # From the very start to well after the workers run.
        time.sleep(random.Random(round_number).uniform(0, 0.6))
        pid = job.pid
        if victim == "inner":
            pid = wait_until(lambda: children_of(job.pid))[0]
        os.kill(pid, signal.SIGKILL)
        job.wait(timeout=10)
        launcher.assert_nothing_left(5)


def test_killed_launcher_ends_its_redis(launcher):
    job = launcher.start("run", "--backend", "gloo-redis", "--set", "redis.start=true", "--", "sh", "-c",
                         "echo ready; exec sleep 300")
    read_until(job, "ready")
    # Redis writes its title over its environment, so the mark does not find it.
    redis = [pid for pid in children_of(children_of(job.pid)[0])
             if "redis" in open(f"/proc/{pid}/comm").read()]
    assert len(redis) == 1
    job.kill()
    job.wait()
    wait_until(lambda: not os.path.exists(f"/proc/{redis[0]}"), 5)
    launcher.assert_nothing_left(5)


def test_reader_that_goes_away(launcher, engine):
    # As if the workers had written to the pipe themselves: `yes` ends by SIGPIPE.
    job = launcher.start("run", "-n", 2, "--engine", engine, "--", "yes")
    read_until(job, "y")
    job.stdout.close()
    err = job.stderr.read().decode()
    assert job.wait(timeout=30) == 141, err
    assert "signal 13" in err
    launcher.assert_nothing_left()


def test_reader_that_stops_reading_does_not_block_signals(launcher, engine):
    job = launcher.start("run", "-n", 2, "--engine", engine, "--grace", "1s", "--", "yes")
    read_until(job, "y")
    time.sleep(1)  # pipes and buffers fill up
    memory = int(next(line for line in open(f"/proc/{children_of(job.pid)[0]}/status")
                      if line.startswith("VmRSS")).split()[1])
    assert memory < 200_000, "kB: output must not pile up in the launcher"
    job.send_signal(signal.SIGINT)
    assert job.wait(timeout=30) == 130
    launcher.assert_nothing_left()


def test_errors_to_a_closed_pipe_do_not_kill_the_job(launcher):
    read, write = os.pipe()
    os.close(read)
    done = launcher.run("run", "-n", 2, "--", "sh", "-c", "echo fine; echo lost >&2; exit 0", stderr=write)
    os.close(write)
    assert lines_of(done.out, 0) == ["fine"]


def test_disk_full_is_said(launcher):
    with open("/dev/full", "w") as full:
        done = launcher.run("run", "--", "sh", "-c", "echo text; sleep 0.3; exit 0", stdout=full)
    assert "output is lost: No space left on device" in done.err
