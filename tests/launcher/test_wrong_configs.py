"""Wrong configurations: each kind with what is said about it. None ends in a stack trace or a hang, and
nothing is started."""

import pytest

# FILE stands for the file's name.
WRONG = [
    ('backnd: gloo\n',
     "FILE:1:1: unknown key 'backnd'; did you mean 'backend'?"),
    ('backend: 7\n',
     "unknown backend '7' (FILE:1); known are gloo, gloo-redis, mpi, self"),
    ('backend: glooo\n',
     "unknown backend 'glooo' (FILE:1); known are gloo, gloo-redis, mpi, self; did you mean 'gloo'?"),
    ('backend: [gloo]\n',
     "FILE:1:10: 'backend' takes a single value"),
    ('backend:\n',
     "FILE:1:1: 'backend' has no value"),
    ('workers: two\n',
     "FILE:1:10: workers: 'two' is not a whole number"),
    ('workers: 0\n',
     'FILE:1:10: workers: 0 is not between 1 and 65536'),
    ('workers: -1\n',
     "FILE:1:10: workers: '-1' is not a whole number"),
    ('workers: 1.5\n',
     "FILE:1:10: workers: '1.5' is not a whole number"),
    ('workers: 08\n',
     "FILE:1:10: '08' for 'workers' is octal to some readers of YAML and decimal to others; "
     'write it plainly'),
    ('workers: 70000\n',
     'FILE:1:10: workers: 70000 is not between 1 and 65536'),
    ('workers: 2\nworkers: 3\n',
     "FILE:2:1: 'workers' appears twice"),
    ('\tworkers: 2\n',
     'FILE:1:1: a tab indents; YAML wants spaces'),
    ('redis: {start: yes}\n',
     "FILE:1:16: 'yes' for 'redis.start' is a truth value to some readers of YAML and a text to "
     'others; write true or false'),
    ('redis: {start: on}\n',
     "FILE:1:16: 'on' for 'redis.start' is a truth value to some readers of YAML and a text to "
     'others; write true or false'),
    ('redis: {start: 1}\n',
     "FILE:1:16: redis.start: '1' is neither true nor false"),
    ('redis: true\n',
     "FILE:1:8: 'redis' is a section; it takes start, user, password_file"),
    ('rendezvous: tcp://a:1\n',
     "FILE:1:13: 'rendezvous' is a section; it takes url, timeout"),
    ('rendezvous: {url: a:1}\n',
     "FILE:1:19: rendezvous.url: 'a:1' is not a URL; write it like tcp://host:port, "
     'file:///folder or redis://host:port/db'),
    ('rendezvous: {url: "redis://u:pw@a:1"}\n',
     'FILE:1:19: rendezvous.url: a password belongs neither on a command line nor in a shared '
     'file; use redis.password_file, or PUSHPULL_REDIS_PASSWORD in the environment'),
    ('rendezvous: {timeout: 1:30}\n',
     "FILE:1:23: rendezvous.timeout: '1:30' is not a duration; write it like 60s, 200ms, 2m or 1h"),
    ('rendezvous: {timeout: soon}\n',
     "FILE:1:23: rendezvous.timeout: 'soon' is not a duration; write it like 60s, 200ms, 2m or 1h"),
    ('rendezvous: {timeout: -5s}\n',
     "FILE:1:23: rendezvous.timeout: '-5s' is not a duration; write it like 60s, 200ms, 2m or 1h"),
    ('ports: 5-4\n',
     "FILE:1:8: ports: '5-4' is not a port or a range of ports; write it like 30000-30100"),
    ('ports: 70000\n',
     "FILE:1:8: ports: '70000' is not a port or a range of ports; write it like 30000-30100"),
    ('log: loud\n',
     "FILE:1:6: log: 'loud' is not one of error, warning, info, debug"),
    ('local: maybe\n',
     "FILE:1:8: local: 'maybe' is not one of auto, shm, backend"),
    ('kubernetes: {user: 0}\n',
     'FILE:1:20: kubernetes.user: 0 is not between 1 and 2147483647'),
    ('tuning: {fusion_bytes: 4 MB}\n',
     "FILE:1:24: tuning.fusion_bytes: '4 MB' is not a size; write it like 4MiB, 64KiB or 1GB"),
    ('tuning: {chunk_bytes: 1}\n',
     'FILE:1:23: tuning.chunk_bytes: 1 is not between 1KiB and 1GiB'),
    ('tuning: {fusion_bites: 4}\n',
     "FILE:1:10: unknown key 'tuning.fusion_bites'; did you mean 'tuning.fusion_bytes'?"),
    ('rank: 0\n',
     "FILE:1:1: 'rank' differs from process to process; it is set by PUSHPULL_RANK in the environment"),
    ('secret: hush\n',
     "FILE:1:1: 'secret' does not belong in a file that others may read; use secret_file or "
     'PUSHPULL_SECRET in the environment'),
    ('redis: {password: hush}\n',
     "FILE:1:9: 'redis.password' does not belong in a file that others may read; use "
     'redis.password_file or PUSHPULL_REDIS_PASSWORD in the environment'),
    ('launch: {env: [A, B]}\n',
     "FILE:1:15: 'launch.env' takes 'NAME: value' lines"),
    ('launch: {env: {A: [1]}}\n',
     "FILE:1:19: 'launch.env.A' takes a single value; write '' for an empty one"),
    ('launch: {env: {A: on}}\n',
     "FILE:1:19: 'on' for 'launch.env.A' is a truth value to some readers of YAML and a text to "
     'others; write "on"'),
    ('launch: {env: {PUSHPULL_RANK: 3}}\n',
     'launch.env sets PUSHPULL_RANK, which the launcher gives to each worker itself (FILE:1)'),
    ('launch: {env: {"": x}}\n',
     "FILE:1:16: '' cannot be a name in launch.env"),
    ('launch: {env: {"A=B": x}}\n',
     "FILE:1:16: 'A=B' cannot be a name in launch.env"),
    ('launch: {engine: ssh}\n',
     "FILE:1:18: launch.engine: 'ssh' is not one of auto, local, mpirun, slurm"),
    ('launch: {restarts: many}\n',
     "FILE:1:20: launch.restarts: 'many' is not a whole number"),
    ('launch: {hosts: "a b"}\n',
     "FILE:1: 'a b' has blanks between hosts; separate them by commas, as in a:2,b:2"),
    ('launch: {hosts: "a:2,a:2"}\n',
     'FILE:1: host a is listed twice; write it once, as in a:4'),
    ('launch: {hosts: "a:zwei"}\n',
     "FILE:1: host a has 'zwei' for its number of workers; write it like a:2"),
    ('launch: {hosts: "a,,b"}\n',
     "FILE:1: 'a,,b' has an empty place in the list of hosts; write it like a:2,b:2"),
    ('launch: {hostfile: /nonexistent}\n',
     "the hostfile '/nonexistent' (FILE:1) cannot be read"),
    ('launch: {starter_args: "\'x"}\n',
     "FILE:1: a quote (') is not closed in the starter's arguments"),
    ('- backend\n',
     "FILE:1:1: expected 'key: value' lines"),
    ('just text\n',
     "FILE:1:1: expected 'key: value' lines"),
    ('workers: 2\n---\nworkers: 3\n',
     'FILE:2:1: a second document begins; one file describes one job'),
    ('workers: [2\n',
     'FILE:2:1: end of sequence flow not found'),
    ('a: {b: {c: {d: 1}}}\n',
     "FILE:1:1: unknown key 'a'; known here are backend, workers, job"),
    (b'\xff\xfe',
     "FILE:1:1: expected 'key: value' lines"),
    (b'backend: gloo\x00\n',
     'FILE:1: a zero byte stands here; this is no text file'),
    ('interface: "10.0.0.0/33"\n',
     "'10.0.0.0/33' in PUSHPULL_INTERFACE is not a network such as 10.0.0.0/8"),
    ('interface: "^"\n',
     "PUSHPULL_INTERFACE has a '^' with no interface behind it"),
    ('secret_file: /nonexistent\n',
     "the file in 'secret_file' '/nonexistent' cannot be read: No such file or directory"),
    ('redis: {start: true, user: x}\nrendezvous: {url: redis://a}\nbackend: gloo-redis\n',
     'redis.start (FILE:1) and a rendezvous URL (FILE:2) exclude each other'),
    ('backend: self\nworkers: 2\n',
     'backend self is for one worker, but 2 were asked for (FILE:2)'),
    ('backend: gloo-redis\nrendezvous: {url: tcp://a:1}\n',
     "backend gloo-redis meets at a Redis server, but the rendezvous URL is 'tcp://a:1' "
     '(FILE:2); use backend gloo, or a redis:// URL'),
    ('backend: mpi\nlaunch: {engine: local}\n',
     'the mpi backend needs an MPI starter; use --engine mpirun, or leave it out'),
    ('<<: {workers: 2}\n',
     "FILE:1:1: unknown key '<<'; known here are backend, workers, job"),
    ('workers: 0x10\n',
     "FILE:1:10: workers: '0x10' is not a whole number"),
    ('? complex\n: 1\n',
     "FILE:1:3: unknown key 'complex'; known here are backend, workers, job"),
    ('workers: 2 # ok\n  backend: gloo\n',
     'FILE:2:3: end of map not found'),
    ('launch: {bind: core}\n',
     "FILE:1:16: launch.bind: 'core' is not one of none, share"),
    ('launch: {grace: 5 s}\n',
     "FILE:1:17: launch.grace: '5 s' is not a duration; write it like 60s, 200ms, 2m or 1h"),
    ('launch: {timeout: never}\n',
     "FILE:1:19: launch.timeout: 'never' is not a duration; write it like 60s, 200ms, 2m or 1h"),
    ('exchange: fast\n',
     "FILE:1:11: exchange: 'fast' is not one of auto, ring, direct, mpi"),
    ('job: [a]\n',
     "FILE:1:6: 'job' takes a single value"),
    ('interface: eth0: 1\n',
     'FILE:1:16: illegal map value'),
    ('backend: gloo\nBackend: mpi\n',
     "FILE:2:1: unknown key 'Backend'; did you mean 'backend'?"),
    ('launch: {hosts: "otherhost:1"}\nrendezvous: {url: tcp://127.0.0.1:5}\n',
     "the rendezvous 'tcp://127.0.0.1:5' (FILE:2) is on the loopback interface, where workers "
     'on other hosts do not reach it; leave it out, or name a host'),
    ('launch: {hosts: "other:1", engine: local}\n',
     'engine local starts workers on this host only, but FILE:1 lists other; use --engine '
     'mpirun, or leave it out'),
    ('launch: {hosts: "other:1", engine: slurm}\n',
     'the hosts of a Slurm job come from its allocation; leave out what FILE:1 says, or give '
     '--engine mpirun'),
    ('launch: {hosts: "other:1"}\nworkers: 2\n',
     '2 workers (FILE:2) do not fit: the hosts take 1 (other:1, as FILE:1 says); give a host '
     'more, as in other:2'),
    ('launch: {hosts: "localhost:1,127.0.0.1:1"}\n',
     'FILE:1: localhost and 127.0.0.1 are the same host; write it once, as in localhost:2'),
]


@pytest.mark.parametrize("content, said", WRONG, ids=range(len(WRONG)))
def test_wrong_file(launcher, tmp_path, content, said):
    file = tmp_path / "job.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = launcher.run("run", "-c", file, "--", "touch", tmp_path / "started", timeout=20)
    assert done.returncode == 2
    assert done.err.startswith(f"pushpull: error: {said.replace('FILE', str(file))}")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "started").exists()


def test_there_are_enough():
    assert len({said for _, said in WRONG}) >= 40


ENVIRONMENT = [
    ({"PUSHPULL_SIZE": "many"}, "environment variable PUSHPULL_SIZE: 'many' is not a whole number"),
    ({"PUSHPULL_ENGINE": "ssh"}, "environment variable PUSHPULL_ENGINE: 'ssh' is not one of auto, local"),
    ({"PUSHPULL_HOSTS": "a b"}, "environment PUSHPULL_HOSTS: 'a b' has blanks between hosts"),
    ({"PUSHPULL_HOSTS": "a", "PUSHPULL_HOSTFILE": "/dev/null"},
     "hosts (environment PUSHPULL_HOSTS) and a hostfile (environment PUSHPULL_HOSTFILE) exclude"),
    ({"PUSHPULL_CONFIG": "/nonexistent.yaml"}, "'/nonexistent.yaml' cannot be read"),
    ({"PUSHPULL_SECRET_FILE": "/"}, "the file in 'secret_file' '/' is a folder"),
    ({"PMI_SIZE": "3"}, "was itself started as one of 3 processes (PMI_SIZE=3)"),
    ({"PUSHPULL_PORTS": "99999"}, "environment variable PUSHPULL_PORTS: '99999' is not a port"),
]


@pytest.mark.parametrize("env, said", ENVIRONMENT, ids=range(len(ENVIRONMENT)))
def test_wrong_environment(launcher, env, said):
    done = launcher.run("run", "--", "true", env=env, timeout=20)
    assert done.returncode == 2
    assert said in done.err and done.err.count("\n") == 1


HOSTFILES = [
    ("", "FILE: the hostfile lists no host"),
    ("a slots=2\nb slots=x\n", "FILE:2: host b has 'x' for its number of workers; write it like b:2"),
    ("a 2\n", "FILE:1: '2' is not understood; write a host like 'a slots=2'"),
    ("a\n# comment\na:3\n", "FILE:3: host a is listed twice; write it once, as in a:4"),
    ("-x\n", "FILE:1: '-x' is no host; write hosts like a:2,b:2"),
    ("::1\n", "FILE:1: '::1' is no host; an IPv6 address does not serve here"),
    ("a slots=2 max_slots=4\n", "FILE:1: 'slots=2 max_slots=4' is not understood"),
]


@pytest.mark.parametrize("content, said", HOSTFILES, ids=range(len(HOSTFILES)))
def test_wrong_hostfile(launcher, tmp_path, content, said):
    file = tmp_path / "hosts"
    file.write_text(content)
    done = launcher.run("run", "--hostfile", file, "--", "true", timeout=20)
    assert done.returncode == 2
    assert said.replace("FILE", str(file)) in done.err


def test_second_host_is_not_taken_for_the_command(launcher):
    done = launcher.run("run", "--hosts", "a:2", "b:2", "python", "train.py", timeout=20)
    assert done.returncode == 2
    assert "'b:2' looks like a host" in done.err and "--hosts a:2,b:2" in done.err
