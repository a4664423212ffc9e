"""pushpull run over four hosts, started by Open MPI's mpirun: a lab's hosts have networks, names and
shared memory of their own; ssh is replaced by the lab's own way into them."""

import json
import os
import random
import signal
import sys
import time

import pytest

from launching import ROOT, lines_of, wait_until

HOSTS = "host0:2,host1:1,host2:1,host3:1"
WHO = "echo $PUSHPULL_RANK/$PUSHPULL_SIZE $(hostname) $PUSHPULL_LOCAL_RANK/$PUSHPULL_LOCAL_SIZE"


def test_workers_are_where_the_hosts_say(launcher):
    done = launcher.run("run", "--hosts", HOSTS, "--", "sh", "-c", WHO)
    assert done.returncode == 0, done.err
    said = [lines_of(done.out, rank)[0] for rank in range(5)]
    assert said == ["0/5 host0 0/2", "1/5 host0 1/2", "2/5 host1 0/1", "3/5 host2 0/1",
                    "4/5 host3 0/1"]
    assert "5 workers on 4 hosts (host0:2,host1:1,host2:1,host3:1)" in done.err
    assert "host0 (10.77.0.1): rank 0, 1 on" in done.err


def test_hostfile_and_fewer_workers_than_slots(launcher, tmp_path):
    (tmp_path / "hosts").write_text("# the lab\nhost1 slots=1\n\nhost2:2  # two\nhost3\n")
    done = launcher.run("run", "--hostfile", tmp_path / "hosts", "-n", 2, "--", "sh", "-c", WHO)
    assert done.returncode == 0, done.err
    assert [lines_of(done.out, rank)[0] for rank in range(2)] == ["0/2 host1 0/1", "1/2 host2 0/1"]


def test_awkward_arguments_and_forwarded_variables(launcher):
    awkward = ["a b", "", "it's", '"quoted"', "$HOME", "new\nline", "a=b", "*", "größer"]
    program = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    env = {"OMP_NUM_THREADS": "3", "MY_SECRET": "hush", "MY_CHOICE": "one\ntwo 'x'", "MXNET_X": "y",
           "DMLC_ROLE": "server"}
    done = launcher.run("run", "--hosts", "host1:1,host2:1", "--forward",
                        "PATH,OMP_*,MXNET_*,MY_*,^MY_SECRET", "--", sys.executable, "-c", program,
                        *awkward, env=env)
    assert done.returncode == 0, done.err
    for rank in range(2):
        arguments, environment = json.loads(lines_of(done.out, rank)[0])
        assert arguments == awkward
        assert environment["OMP_NUM_THREADS"] == "3" and environment["MXNET_X"] == "y"
        assert environment["MY_CHOICE"] == env["MY_CHOICE"]
        assert "MY_SECRET" not in environment and "DMLC_ROLE" not in environment
        assert "PUSHPULL_LAUNCH_TOKEN" not in environment
        assert environment["PUSHPULL_RENDEZVOUS"].startswith("tcp://10.77.0.2:")


@pytest.mark.parametrize("backend", ["gloo", "mpi", "gloo-redis", "file"])
def test_ranks_of_four_hosts_exchange(launcher, backend, tmp_path):
    flags = {"gloo-redis": ["--backend", "gloo-redis", "--set", "redis.start=true"],
             "file": ["--backend", "gloo", "--rendezvous", f"file://{tmp_path}/meet"]
             }.get(backend, ["--backend", backend])
    done = launcher.run("check", "--hosts", HOSTS, *flags, "--json", timeout=120)
    report = json.loads(done.out)
    by_name = {row["check"]: row for row in report["results"]}
    name = "gloo" if backend == "file" else backend
    exchange = by_name[f"exchange by {name}"]
    assert exchange["health"] == "pass", (exchange, done.err)
    assert exchange["found"] == "5 ranks summed 100000 values" and exchange["ranks"] == [0, 1, 2, 3, 4]
    assert by_name["reachability"]["health"] == "pass"
    assert done.returncode == 0


def test_failure_is_named_with_its_host(launcher):
    done = launcher.run("run", "--hosts", HOSTS, "--", "sh", "-c",
                        "test $PUSHPULL_RANK = 3 && { echo broken >&2; exit 7; }; exec sleep 60")
    assert done.returncode == 7
    assert "rank 3 on host host2 (pid " in done.err and "exit code 7" in done.err
    assert "  [3] broken" in done.err
    launcher.assert_nothing_left()


def test_restart_after_a_lost_worker(launcher, tmp_path):
    script = (f"if mkdir {tmp_path}/once 2>/dev/null; then kill -9 $$; fi;"
              f"test -e {tmp_path}/again || sleep 1; echo rank $PUSHPULL_RANK of $PUSHPULL_JOB")
    done = launcher.run("run", "--hosts", "host0:1,host1:1", "--restarts", 2, "--", "sh", "-c", script)
    assert done.returncode == 0, done.err
    assert "starting the job again (1 of at most 2 times)" in done.err


def test_a_host_that_does_not_exist(launcher):
    done = launcher.run("run", "--hosts", "host0:1,host9:1", "--rendezvous-timeout", "20s", "--", "true",
                        timeout=60)
    assert done.returncode == 1
    assert "mpirun" in done.err and "missing rank 0, 1" in done.err
    launcher.assert_nothing_left()


@pytest.mark.cluster
def test_a_host_that_cannot_be_reached(launcher, lab):
    lab.set_link("host3", "down")
    try:
        done = launcher.run("run", "--hosts", "host0:1,host3:1", "--rendezvous-timeout", "8s", "--",
                            "true", timeout=60)
    finally:
        lab.set_link("host3", "up")
    assert done.returncode == 1
    assert "mpirun took too long; missing rank" in done.err or "mpirun ended" in done.err
    launcher.assert_nothing_left(30)


@pytest.mark.cluster
def test_a_host_that_is_lost_in_the_middle(launcher, lab):
    job = launcher.start("run", "--hosts", "host0:1,host3:1", "--forward", "*", "--", "sh", "-c",
                         "echo ready >&2; exec sleep 300")
    seen = b""
    while seen.count(b"ready") < 2:
        seen += os.read(job.stderr.fileno(), 65536)
    lab.set_link("host3", "down")
    try:
        err = job.communicate(timeout=120)[1].decode()
    finally:
        lab.set_link("host3", "up")
    assert job.returncode not in (0, None), err
    assert "host3" in err or "rank 1" in err
    launcher.assert_nothing_left(60)


@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=pytest.mark.cluster)])
def test_killed_launcher_leaves_nothing_on_any_host(launcher, rounds):
    daemon = 'setsid sh -c "sleep 300 & wait" >/dev/null 2>&1 & exec sleep 300'
    for number in range(rounds):
        job = launcher.start("run", "--hosts", HOSTS, "--forward", "*", "--", "sh", "-c", daemon)
        time.sleep(random.Random(number).uniform(0, 3))
        os.kill(job.pid, signal.SIGKILL)
        job.communicate(timeout=20)
        launcher.assert_nothing_left(5)


def test_log_dir_and_binding(launcher, tmp_path):
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    done = launcher.run("run", "--hosts", "host0:2,host1:1", "--bind", "share", "--log-dir",
                        tmp_path / "logs", "--", sys.executable, "-c", program)
    assert done.returncode == 0, done.err
    shares = [json.loads((tmp_path / "logs" / f"rank-{rank}.log").read_text()) for rank in range(3)]
    cores = sorted(os.sched_getaffinity(0))
    assert shares[2] == cores
    if len(cores) > 1:
        assert sorted(shares[0] + shares[1]) == cores
    assert "a share each" in done.err


@pytest.mark.cluster
@pytest.mark.parametrize("config", ["local.yaml", "mpi.yaml", "gloo-redis.yaml", "slurm.yaml"])
def test_digits_over_four_hosts(launcher, config):
    done = launcher.run("run", "-c", ROOT / "configs" / config, "--engine", "mpirun", "--hosts",
                        "host0:1,host1:1,host2:1,host3:1", "-n", 4, "--", "python",
                        ROOT / "examples" / "gluon_digits.py", timeout=280)
    assert done.returncode == 0, done.err
    assert "parameters are identical on all 4 workers" in done.out
    accuracy = float(done.out.split("test accuracy: ")[1].split()[0])
    assert accuracy >= 0.97


def test_job_is_ended_by_a_signal(launcher):
    job = launcher.start("run", "--hosts", HOSTS, "--forward", "*", "--", "sh", "-c",
                         "echo ready >&2; exec sleep 300")
    seen = b""
    while seen.count(b"ready") < 5:
        seen += os.read(job.stderr.fileno(), 65536)
    pid = wait_until(lambda: job.poll() is None and job.pid)
    os.kill(pid, signal.SIGTERM)
    job.communicate(timeout=30)
    assert job.returncode == 143
    launcher.assert_nothing_left()
