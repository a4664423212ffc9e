"""pushpull run with real processes: what workers get, what comes out, and which exit code."""

import json
import os
import subprocess
import sys

import pytest

from launching import lines_of, pushpull_command

PYTHON = sys.executable


def test_workers_learn_who_they_are(launcher, engine):
    script = "echo $PUSHPULL_RANK $PUSHPULL_SIZE $PUSHPULL_LOCAL_RANK $MXNET_KVSTORE_BACKEND"
    done = launcher.run("run", "-n", 3, "--engine", engine, "--", "sh", "-c", script)
    assert done.returncode == 0, done.err
    for rank in range(3):
        assert lines_of(done.out, rank) == [f"{rank} 3 {rank} gloo"]


AWKWARD = {
    "QUOTES": "'single' \"double\" `back` $HOME \\ ;",
    "EQUALS": "a=b=c",
    "NEWLINES": "one\ntwo\n\n",
    "EMPTY": "",
    "LARGE": "x" * 100_000,
    "with.dot": "dotted",
    "BASH_FUNC_greet%%": "() {  echo hello;\n}",
    "UNICODE": "größer ✓",
}


def test_environment_arrives_unchanged(launcher, engine):
    program = "import os, json; print(json.dumps({k: v for k, v in os.environ.items()}))"
    done = launcher.run("run", "-n", 2, "--engine", engine, "--", PYTHON, "-c", program, env=AWKWARD)
    assert done.returncode == 0, done.err
    for rank in range(2):
        got = json.loads(lines_of(done.out, rank)[0])
        assert {name: got.get(name) for name in AWKWARD} == AWKWARD


def test_arguments_arrive_unchanged(launcher, engine):
    words = ["two words", "", "new\nline", "'single'", '"double"', "$HOME", "*", "\\", "-n", "--", "ü"]
    program = "import sys; print(sys.argv[1:])"
    done = launcher.run("run", "--engine", engine, "--", PYTHON, "-c", program, *words)
    assert lines_of(done.out, 0) == [str(words)], done.err


def test_command_may_stand_without_dashes(launcher):
    done = launcher.run("run", "-n", 2, "sh", "-c", "echo a $0 $1", "-n", "7")
    assert done.returncode == 0, done.err
    assert lines_of(done.out, 1) == ["a -n 7"]


@pytest.mark.parametrize("script, code, said", [
    ("exit 3", 3, "exit code 3"),
    ("exit 137", 137, "exit code 137"),
    ("exit 75", 75, "exit code 75"),
    ("kill -9 $$", 137, "signal 9 (Killed)"),
    ("kill -11 $$", 139, "signal 11 (Segmentation fault)"),
])
def test_first_failure_is_the_jobs(launcher, engine, script, code, said):
    done = launcher.run("run", "-n", 3, "--engine", engine, "--", "sh", "-c",
                        f"test $PUSHPULL_RANK = 1 || exec sleep 60; echo last words; {script}")
    assert done.returncode == code, done.err
    assert "rank 1 on host" in done.err and said in done.err
    assert "[1] last words" in done.err.split("its last lines:")[1]
    launcher.assert_nothing_left()


def test_the_others_may_say_why_they_end(launcher):
    script = ("test $PUSHPULL_RANK = 1 && kill -9 $$; sleep 0.5; echo rank 1 is gone >&2; exit 75")
    done = launcher.run("run", "-n", 3, "--", "sh", "-c", script)
    assert done.returncode == 137
    assert lines_of(done.err, 0) == lines_of(done.err, 2) == ["rank 1 is gone"]
    assert "the others: rank 0 exit code 75, rank 2 exit code 75" in done.err


def test_rank_0_fails_while_the_others_sleep(launcher, engine):
    done = launcher.run("run", "-n", 3, "--engine", engine, "--grace", "2s", "--", "sh", "-c",
                        "test $PUSHPULL_RANK = 0 && exit 1; exec sleep 120", timeout=30)
    assert done.returncode == 1, done.err
    launcher.assert_nothing_left()


def test_worker_that_ignores_term_is_killed(launcher, engine):
    script = "trap '' TERM; test $PUSHPULL_RANK = 0 && exit 4; while :; do sleep 1; done"
    done = launcher.run("run", "-n", 2, "--engine", engine, "--grace", "1s", "--", "sh", "-c", script,
                        timeout=30)
    assert done.returncode == 4
    assert "killing rank 1, still running after 1s" in done.err
    launcher.assert_nothing_left()


def test_command_not_found(launcher, engine):
    done = launcher.run("run", "-n", 2, "--engine", engine, "--", "no-such-program")
    assert done.returncode == 127
    assert "command not found: 'no-such-program' is not in any folder of PATH" in done.err


def test_command_not_executable(launcher, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    done = launcher.run("run", "--", script)
    assert done.returncode == 126
    assert f"'{script}' is not executable" in done.err
    done = launcher.run("run", "--", tmp_path)
    assert done.returncode == 126
    assert "is a folder, not a program" in done.err


def test_interpreter_of_a_script_is_missing(launcher, tmp_path):
    script = tmp_path / "train"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = launcher.run("run", "-n", 2, "--", script)
    assert done.returncode == 127
    assert "the interpreter in its first line is missing" in done.err


def test_python_beside_the_command_comes_first(launcher, tmp_path):
    done = launcher.run("run", "--", "sh", "-c", "command -v pushpull", env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.err
    assert os.path.isfile(lines_of(done.out, 0)[0])


def test_dmlc_variables_are_removed_and_said_once(launcher, engine):
    done = launcher.run("run", "-n", 2, "--engine", engine, "--", "sh", "-c", "echo role=$DMLC_ROLE",
                        env={"DMLC_ROLE": "server", "DMLC_PS_ROOT_URI": "10.0.0.1"})
    assert lines_of(done.out, 0) == lines_of(done.out, 1) == ["role="]
    assert done.err.count("removed DMLC_PS_ROOT_URI, DMLC_ROLE from the workers' environment") == 1


def test_secrets_are_never_printed(launcher):
    env = {"PUSHPULL_SECRET": "hush-1", "PUSHPULL_REDIS_PASSWORD": "hush-2", "OTHER_KEY": "hush-3",
           "PUSHPULL_RENDEZVOUS": "redis://user:hush-4@127.0.0.1:1/0"}
    for arguments in (["run", "--dry-run", "-n", 2, "--", "true"],
                      ["run", "-n", 2, "--log", "debug", "--", "false"],
                      ["config"], ["config", "--json"]):
        done = launcher.run(*arguments, env=env)
        assert "hush" not in done.out + done.err, arguments


def test_each_job_gets_its_own_secret_name_and_port(launcher):
    script = "echo $PUSHPULL_SECRET; echo $PUSHPULL_JOB; echo $PUSHPULL_RENDEZVOUS"
    a, b = (launcher.run("run", "-n", 2, "--", "sh", "-c", script) for _ in range(2))
    assert lines_of(a.out, 0) == lines_of(a.out, 1)
    assert len(lines_of(a.out, 0)[0]) == 64
    assert all(x != y for x, y in zip(lines_of(a.out, 0)[:2], lines_of(b.out, 0)[:2]))


def test_named_job_and_users_secret_stay(launcher):
    done = launcher.run("run", "--job", "nightly", "--", "sh", "-c", "echo $PUSHPULL_JOB $PUSHPULL_SECRET",
                        env={"PUSHPULL_SECRET": "mine"})
    assert lines_of(done.out, 0) == ["nightly mine"]


def test_flags_reach_the_workers(launcher):
    done = launcher.run("run", "--rendezvous-timeout", "7s", "--set", "tuning.chunk_bytes=3KiB", "--", "sh", "-c",
                        "echo $PUSHPULL_RENDEZVOUS_TIMEOUT $PUSHPULL_CHUNK_BYTES")
    assert lines_of(done.out, 0) == ["7s 3KiB"]


def test_configuration_file_reaches_the_workers(launcher, tmp_path):
    (tmp_path / "job.yaml").write_text("workers: 2\nlaunch: {env: {GREETING: \"it's \\\"me\\\"\"}}\n")
    done = launcher.run("run", "-c", "job.yaml", "--", "sh", "-c",
                        "cd /; test -f \"$PUSHPULL_CONFIG\" && echo \"$GREETING\"", cwd=tmp_path)
    assert lines_of(done.out, 1) == ['it\'s "me"'], done.err


def test_rank_0_reads_standard_input(launcher):
    done = launcher.run("run", "-n", 2, "--", "cat", input=b"a line\n")
    assert lines_of(done.out, 0) == ["a line"]
    assert lines_of(done.out, 1) == []


def test_timeout_ends_the_job(launcher, engine):
    done = launcher.run("run", "-n", 2, "--engine", engine, "--timeout", "1s", "--", "sleep", "60",
                        timeout=30)
    assert done.returncode == 124
    assert "the job has run for 1s, its timeout" in done.err
    launcher.assert_nothing_left()


def test_log_dir_has_one_file_per_rank(launcher, engine, tmp_path):
    done = launcher.run("run", "-n", 2, "--engine", engine, "--log-dir", tmp_path / "new" / "logs", "--",
                        "sh", "-c", "echo out $PUSHPULL_RANK; echo err >&2; exit $PUSHPULL_RANK")
    assert done.returncode == 1
    assert done.out == ""
    for rank in range(2):
        text = (tmp_path / "new" / "logs" / f"rank-{rank}.log").read_text()
        assert text == f"out {rank}\nerr\n"
    assert "its output is in" in done.err and "  out 1" in done.err


def test_bind_share_gives_each_worker_its_cores(launcher, engine):
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    done = launcher.run("run", "-n", 2, "--engine", engine, "--bind", "share", "--", PYTHON, "-c", program)
    assert "bound to shares of the cores" in done.err
    shares = [eval(lines_of(done.out, rank)[0]) for rank in range(2)]
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= 2:
        assert sorted(shares[0] + shares[1]) == cores
    else:
        assert shares == [cores, cores]


def test_all_cores_without_binding(launcher, engine):
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    done = launcher.run("run", "-n", 2, "--engine", engine, "--", PYTHON, "-c", program)
    assert eval(lines_of(done.out, 1)[0]) == sorted(os.sched_getaffinity(0))


def test_mpi_backend_is_started_by_mpirun(launcher):
    done = launcher.run("run", "-n", 2, "--backend", "mpi", "--", "sh", "-c",
                        "echo $OMPI_COMM_WORLD_RANK/$OMPI_COMM_WORLD_SIZE")
    assert done.returncode == 0, done.err
    assert [lines_of(done.out, r) for r in range(2)] == [["0/2"], ["1/2"]]


def test_mpirun_missing_names_the_package(launcher, tmp_path):
    done = launcher.run("run", "-n", 2, "--backend", "mpi", "--", "/bin/true", env={"PATH": str(tmp_path)})
    assert done.returncode == 127
    assert "'mpirun'" in done.err and "openmpi-bin" in done.err


def test_private_redis_lives_as_long_as_the_job(launcher, tmp_path):
    (tmp_path / "job.yaml").write_text("backend: gloo-redis\nredis: {start: true}\n")
    script = ("redis-cli -u $PUSHPULL_RENDEZVOUS -a $PUSHPULL_REDIS_PASSWORD --no-auth-warning ping;"
              "redis-cli -u $PUSHPULL_RENDEZVOUS ping; echo $PUSHPULL_RENDEZVOUS")
    done = launcher.run("run", "-c", tmp_path / "job.yaml", "--", "sh", "-c", script)
    out = lines_of(done.out, 0)
    assert out[0] == "PONG" and out[1].startswith("NOAUTH"), done.err
    probe = subprocess.run(["redis-cli", "-u", out[-1], "ping"], capture_output=True, text=True)
    assert "Connection refused" in probe.stderr
    launcher.assert_nothing_left()


def test_private_redis_that_dies_is_named(launcher, tmp_path):
    script = "redis-cli -u $PUSHPULL_RENDEZVOUS -a $PUSHPULL_REDIS_PASSWORD shutdown; sleep 0.5"
    done = launcher.run("run", "--backend", "gloo-redis", "--set", "redis.start=true", "--", "sh", "-c",
                        script)
    assert "the private Redis server has ended" in done.err


def test_redis_missing_names_the_package(launcher, tmp_path):
    done = launcher.run("run", "--backend", "gloo-redis", "--set", "redis.start=true", "--", "/bin/true",
                        env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "install Debian package redis-server" in done.err


def test_started_by_mpirun_itself_is_refused(launcher):
    done = launcher.run("run", "-n", 2, "--", "true", env={"OMPI_COMM_WORLD_SIZE": "2"})
    assert done.returncode == 2
    assert "pushpull run was itself started as one of 2 processes (OMPI_COMM_WORLD_SIZE=2)" in done.err


def test_output_that_is_closed_from_the_start(launcher):
    process = subprocess.run(
        ["sh", "-c", f'exec "$0" run -n 2 -- sh -c "echo hello; exit 5" >&- 2>&- <&-', pushpull_command()],
        env=launcher.environment(), timeout=30)
    assert process.returncode == 5
