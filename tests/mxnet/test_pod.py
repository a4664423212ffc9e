"""What workers meet in a pod, without a cluster: the environment that Kubernetes injects, the configuration
that `pushpull manifest` writes, and the Redis that it deploys, started by its own script.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Kubernetes sets these for each Service of the namespace, here for ones with unlucky names.
SERVICES = ["REDIS", "PUSHPULL", "PUSHPULL_SECRET", "PUSHPULL_RANK", "PUSHPULL_REDIS", "MXNET_KVSTORE_BACKEND",
            "PUSHPULL_RENDEZVOUS", "DIGITS_REDIS", "DIGITS"]


def injected(service, address="10.96.7.7", port=6379):
    url = f"tcp://{address}:{port}"
    return {f"{service}_SERVICE_HOST": address, f"{service}_SERVICE_PORT": str(port),
            f"{service}_SERVICE_PORT_REDIS": str(port), f"{service}_PORT": url,
            f"{service}_PORT_{port}_TCP": url, f"{service}_PORT_{port}_TCP_PROTO": "tcp",
            f"{service}_PORT_{port}_TCP_PORT": str(port), f"{service}_PORT_{port}_TCP_ADDR": address}


ENVIRONMENT = {name: value for service in SERVICES for name, value in injected(service).items()}


def pushpull(*arguments, env=None):
    command = os.environ.get("PUSHPULL_COMMAND", str(pathlib.Path(sys.executable).parent / "pushpull"))
    clean = {k: v for k, v in os.environ.items()
             if not k.startswith("PUSHPULL_") and k != "MXNET_KVSTORE_BACKEND"}
    return subprocess.run([command, *map(str, arguments)], env={**clean, **(env or {})}, capture_output=True,
                          text=True, check=True, timeout=60).stdout


def test_no_variable_of_ours_is_one_that_kubernetes_injects():
    quiet = json.loads(pushpull("config", "--json"))
    assert json.loads(pushpull("config", "--json", env=ENVIRONMENT)) == quiet


@pytest.fixture
def pod(tmp_path):
    """A manifest's ConfigMaps and Secret as files of this machine, and its Redis running."""
    text = pushpull("manifest", "-c", ROOT / "configs" / "kubernetes.yaml", "-n", 2, "--", "python",
                    "examples/gluon_digits.py", env={"PUSHPULL_REDIS_PASSWORD": "it's a \"word\" $(x) #"})
    objects = [document for document in yaml.safe_load_all(text) if document]
    maps = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "ConfigMap"}
    (secret,) = [o["stringData"] for o in objects if o["kind"] == "Secret"]
    (tmp_path / "secret").mkdir()
    for name, value in secret.items():
        (tmp_path / "secret" / name).write_text(value)

    def moved(content):
        return (content.replace("/run/secrets/pushpull", str(tmp_path / "secret"))
                .replace("/etc/pushpull", str(tmp_path)).replace("/tmp/users.acl", str(tmp_path / "users.acl"))
                .replace("dir /tmp\n", f"dir {tmp_path}\n"))

    (tmp_path / "start.sh").write_text(moved(maps["digits-redis"]["start.sh"]))
    for attempt in range(20):
        port = 20000 + (os.getpid() * 7 + attempt * 101) % 10000
        configuration = moved(maps["digits-redis"]["redis.conf"]).replace("port 6379", f"port {port}")
        (tmp_path / "redis.conf").write_text(configuration)
        redis = subprocess.Popen(["sh", tmp_path / "start.sh"], stdout=subprocess.DEVNULL)
        if answers(port, redis):
            break
    else:
        pytest.fail("no port for Redis")
    (tmp_path / "pushpull.yaml").write_text(
        moved(maps["digits"]["pushpull.yaml"]).replace("digits-redis:6379", f"127.0.0.1:{port}")
        .replace("29501-29504", "10000-32000"))
    (job,) = [o for o in objects if o["kind"] == "Job"]
    given = {e["name"]: e["value"] for e in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    given["PUSHPULL_CONFIG"] = str(tmp_path / "pushpull.yaml")
    yield {"port": port, "env": given, "secret": secret, "folder": tmp_path}
    redis.terminate()
    redis.wait()
    shutil.rmtree(tmp_path / "secret")


def answers(port, redis):
    end = time.monotonic() + 10
    while redis.poll() is None and time.monotonic() < end:
        done = subprocess.run(["redis-cli", "-p", str(port), "ping"], capture_output=True, text=True)
        if "NOAUTH" in done.stdout:
            return True
        time.sleep(0.05)
    return False


def test_workers_train_on_what_the_manifest_gives_them(pod):
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(("PUSHPULL_", "OMPI_", "SLURM_")) or k == "PUSHPULL_LIBRARY_DIR"}
    workers = [subprocess.Popen(
        [sys.executable, ROOT / "examples" / "gluon_digits.py", "--steps", "3"], text=True,
        env={**env, **ENVIRONMENT, **pod["env"], "JOB_COMPLETION_INDEX": str(rank), "PUSHPULL_LOG": "debug"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in range(2)]
    outputs = [worker.communicate(timeout=100)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert "parameters are identical on all 2 workers" in outputs[0]
    for value in pod["secret"].values():
        assert not any(value in output for output in outputs)


def test_the_redis_lets_only_the_job_in(pod):
    def ask(*words, user=None, password=None):
        env = {**os.environ, **({"REDISCLI_AUTH": password} if password else {})}
        login = ["--user", user] if user else []
        return subprocess.run(["redis-cli", "-p", str(pod["port"]), *login, *words], env=env,
                              capture_output=True, text=True).stdout

    assert "NOAUTH" in ask("get", "pushpull:x")
    password = pod["secret"]["redis-password"]
    assert "OK" in ask("set", "pushpull:x", "1", user="pushpull", password=password)
    assert "NOPERM" in ask("set", "other:x", "1", user="pushpull", password=password)
    assert "NOPERM" in ask("config", "get", "*", user="pushpull", password=password)
    assert password not in (pod["folder"] / "users.acl").read_text()
