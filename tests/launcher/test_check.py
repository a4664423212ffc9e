"""pushpull check: what it finds, here and across ranks."""

import json
import socket
import subprocess

import pytest

from launching import ROOT, pushpull_command

BACKENDS = ("gloo", "gloo-redis", "mpi")


def rows_of(done):
    report = json.loads(done.out)
    return report, {row["check"]: row for row in report["results"]}


def test_this_host(launcher):
    done = launcher.run("check", "--json", timeout=120)
    report, rows = rows_of(done)
    for name in ("version", "backend gloo", "backend mpi", "rendezvous by tcp", "rendezvous by redis",
                 "host name", "interface", "processor", "cores", "memory", "shared memory",
                 "single copy", "open files"):
        assert rows[name]["found"], name
        assert rows[name]["health"] in ("pass", "warn"), rows[name]
        assert (rows[name]["todo"] == "") == (rows[name]["health"] == "pass")
    for backend in BACKENDS:
        assert rows[f"exchange by {backend}"]["health"] == "pass", rows[f"exchange by {backend}"]
    assert report["health"] in ("pass", "warn") and done.returncode == 0
    launcher.assert_nothing_left()


def test_table(launcher):
    done = launcher.run("check", "-n", 2, timeout=120)
    assert done.returncode == 0, done.out
    assert "pass  reachability" in done.out and "all 2 ranks can be reached" in done.out
    assert "pass  clock" in done.out and "pass  exchange by gloo" in done.out
    assert done.out.splitlines()[-1].endswith(" fail")
    assert "examining 2 ranks" in done.err  # what goes on is no part of the answer


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_of_a_configuration(launcher, tmp_path, backend):
    start = "redis: {start: true}\n" if backend == "gloo-redis" else ""
    (tmp_path / "job.yaml").write_text(f"backend: {backend}\nworkers: 3\n{start}")
    done = launcher.run("check", "-c", tmp_path / "job.yaml", "--json", timeout=120)
    _, rows = rows_of(done)
    exchange = rows[f"exchange by {backend}"]
    assert exchange["found"] == "3 ranks summed 100000 values" and exchange["ranks"] == [0, 1, 2]
    assert rows["reachability"]["ranks"] == [0, 1, 2]
    assert done.returncode == 0


def test_missing_module_of_the_job_fails_and_of_others_warns(launcher, tmp_path):
    # A backend of somebody else that does not load.
    (tmp_path / "libpushpull_backend_broken.so").write_text("no library")
    env = {"PUSHPULL_BACKEND_PATH": str(tmp_path)}
    done = launcher.run("check", "--backend", "broken", "--json", env=env, timeout=120)
    report, rows = rows_of(done)
    assert done.returncode == 1 and report["health"] == "fail"
    assert rows["backend broken"]["health"] == "fail" and rows["backend broken"]["todo"]
    assert rows["exchange"]["health"] == "fail" and "broken" in rows["exchange"]["found"]
    assert rows["backend gloo"]["health"] == "pass"


def test_interface_that_is_not_there(launcher):
    done = launcher.run("check", "-n", 2, "--interface", "nothing0", "--json", timeout=120)
    assert done.returncode == 2
    assert "no interface of host" in done.err and "lo (127.0.0.1)" in done.err


def test_a_kubernetes_job_is_no_business_of_this_host(launcher):
    done = launcher.run("check", "-c", ROOT / "configs" / "kubernetes.yaml", "--engine", "kubernetes")
    assert (done.returncode, done.out) == (2, "")
    assert "check looks at a Kubernetes job from inside its pods: kubectl exec" in done.err
    assert "engine kubernetes (flag --engine)" in done.err


def test_ports_that_are_taken(launcher):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        done = launcher.run("check", "-n", 2, "--ports", f"{port}-{port}", "--rendezvous-timeout", "4s",
                            "--json", env={"PUSHPULL_LOCAL": "backend"}, timeout=120)
    _, rows = rows_of(done)
    assert done.returncode == 1 and rows["ports"]["health"] == "fail"


def test_redis_that_is_not_there(launcher):
    done = launcher.run("check", "-n", 2, "--backend", "gloo-redis", "--rendezvous",
                        "redis://127.0.0.1:1/0", "--rendezvous-timeout", "2s", "--json", timeout=120)
    _, rows = rows_of(done)
    assert done.returncode == 1
    assert rows["rendezvous"]["health"] == "fail" and "127.0.0.1:1" in rows["rendezvous"]["found"]


def test_folder_that_cannot_be_written(launcher):
    done = launcher.run("check", "-n", 2, "--rendezvous", "file:///proc/none", "--rendezvous-timeout",
                        "2s", "--json", timeout=120)
    _, rows = rows_of(done)
    assert done.returncode == 1 and rows["rendezvous folder"]["health"] == "fail"


def test_few_open_files(launcher):
    done = subprocess.run(
        ["sh", "-c", f"ulimit -Hn 128; ulimit -n 128; exec '{pushpull_command()}' check --json"],
        env=launcher.environment(), capture_output=True, text=True, timeout=120,
        stdin=subprocess.DEVNULL)
    rows = {row["check"]: row for row in json.loads(done.stdout)["results"]}
    assert rows["open files"]["health"] == "fail" and "ulimit" in rows["open files"]["todo"]
    assert done.returncode == 1


def test_secrets_do_not_show(launcher):
    done = launcher.run("check", "-n", 2, "--json", env={"PUSHPULL_SECRET": "hush-hush"}, timeout=120)
    assert "hush" not in done.out + done.err
    assert done.returncode == 0, done.out


def test_check_takes_no_command(launcher):
    done = launcher.run("check", "--", "python", "train.py")
    assert done.returncode == 2 and "check takes no command" in done.err
