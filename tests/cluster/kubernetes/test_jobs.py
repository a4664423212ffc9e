"""Jobs on a real Kubernetes: they train, survive what happens to pods and to Redis, and leave nothing."""

import json
import pathlib
import re
import time

import pytest
import yaml

from cluster import FOLDER, Job, accuracy, report, wait_until

# A busy machine takes a minute to import MXNet four times.
pytestmark = pytest.mark.timeout(900)

DIGITS = ["python", "examples/gluon_digits.py"]
# About a minute on two cores, so that there is a middle in which things can happen.
LONG = [*DIGITS, "--epochs", "150"]


def secrets_of(text):
    (secret,) = [o["stringData"] for o in yaml.safe_load_all(text) if o and o["kind"] == "Secret"]
    return list(secret.values())


def command_lines():
    """Of all processes, those of the pods among them."""
    lines = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines.append((entry / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return lines


def steps(logs):
    """-> how often rank 0 has reported an epoch, and the last step it reported."""
    found = [int(n) for n in re.findall(r"\] (\d+)/\d+ steps", logs)]
    return len(found), found[-1] if found else 0


def test_four_pods_find_each_other_through_redis_and_train(space):
    text = space.manifest("--log", "debug", command=[*DIGITS, "--epochs", "12"])
    start = time.monotonic()
    space.apply(text)
    job = Job(space, "digits")
    job.wait_running(4)
    seen = command_lines()
    assert any("gluon_digits" in line for line in seen)
    logs = job.wait_complete()
    report("4 pods train the digits example, apply to Complete", f"{time.monotonic() - start:.0f} s")
    assert accuracy(logs) >= 0.97, logs
    assert "parameters are identical on all 4 workers" in logs
    objects = space.get("all,configmaps,networkpolicies,endpointslices,events")["items"]
    redis = space.kubectl("logs", "deployment/digits-redis")
    for value in secrets_of(text):
        assert value not in json.dumps(objects)
        assert value not in logs and value not in redis
        assert not any(value in line for line in seen)
    policies = {o["metadata"]["name"] for o in objects if o["kind"] == "NetworkPolicy"}
    assert policies == {"digits", "digits-redis"}


def test_redis_comes_last_and_rank_0_after_the_others(space):
    documents = space.manifest(command=DIGITS).split("---\n")
    space.apply("---\n".join(d for d in documents if "kind: Deployment" not in d))
    job = Job(space, "digits")
    pods = job.wait_running(4)
    # Nobody has joined yet: the others just wait for the new one.
    space.kubectl("delete", "pod", pods[0]["metadata"]["name"], "--wait=false")
    time.sleep(5)
    space.apply(next(d for d in documents if "kind: Deployment" in d))
    logs = job.wait_complete()
    assert accuracy(logs) >= 0.97, logs
    assert space.get("job", "digits")["status"].get("failed", 0) == 1


def test_a_deleted_pod_brings_all_back_to_the_checkpoint(space):
    space.volume(pathlib.Path(FOLDER) / space.name)
    job = space.start("--set", "kubernetes.checkpoint=pvc://models/digits", command=LONG)
    job.wait_running(4)
    job.wait_for_log("epoch  8/")
    pods = job.pods()
    survivors = {pod["metadata"]["name"] for rank, pod in pods.items() if rank != 2}
    before = steps(job.logs())[1]
    start = time.monotonic()
    space.kubectl("delete", "pod", pods[2]["metadata"]["name"], "--wait=false")

    def ended():
        states = [p["status"]["containerStatuses"][0]["state"] for p in space.get("pods", "-l", job.selector)["items"]
                  if p["metadata"]["name"] in survivors]
        codes = [s["terminated"]["exitCode"] for s in states if "terminated" in s]
        return codes if len(codes) == 3 else None

    codes = wait_until(ended, 60, "the survivors end")
    report("survivors of a deleted pod have ended after", f"{time.monotonic() - start:.0f} s")
    assert codes.count(75) == 3, codes
    job.wait_for_log("going on after step")
    resumed = int(re.findall(r"going on after step (\d+)", job.logs())[-1])
    wait_until(lambda: steps(job.logs())[1] > max(before, resumed), 240, "training goes on")
    seconds = time.monotonic() - start
    report("a deleted pod costs", f"{seconds:.0f} s, and {max(0, before - resumed)} steps")
    assert resumed >= before - 22  # an epoch
    logs = job.wait_complete(240)
    assert accuracy(logs) >= 0.97, logs
    assert "parameters are identical on all 4 workers" in logs


def test_redis_may_go_after_all_are_connected(space):
    job = space.start(command=[*DIGITS, "--epochs", "80"])
    job.wait_for_log("epoch  1/")
    space.kubectl("delete", "deployment,service,pod", "-l", "app.kubernetes.io/component=redis,"
                  "app.kubernetes.io/instance=digits", "--timeout=30s")
    logs = job.wait_complete()
    assert accuracy(logs) >= 0.97, logs
    assert space.get("job", "digits")["status"].get("failed", 0) == 0


def test_without_redis_they_meet_at_rank_0(space):
    job = space.start("--backend", "gloo", "--set", "redis.start=false", "-n", 2, command=DIGITS)
    assert accuracy(job.wait_complete()) >= 0.97


def test_two_jobs_at_once_by_run(space):
    with space.running("-n", 2, command=DIGITS) as one, space.running("-n", 2, command=DIGITS) as two:
        for process in (one, two):
            out, err = process.communicate(timeout=200)
            assert process.returncode == 0, out + err
            assert re.search(r"^\[0\] test accuracy: 0\.9[789]", out, re.MULTILINE), out + err
    assert not nothing_left(space)


def nothing_left(space):
    kinds = "jobs,pods,services,deployments,networkpolicies,secrets"
    return [f"{o['kind']} {o['metadata']['name']}" for o in space.get(kinds)["items"]]


@pytest.mark.parametrize("script, code", [
    ("import os, time; time.sleep(1); raise SystemExit(3 if os.environ['JOB_COMPLETION_INDEX'] == '1' else 75)", 3),
    ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 139),
])
def test_a_bug_fails_the_job_at_once(space, script, code):
    with space.running("-n", 2, command=["python", "-c", script]) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == code, out + err
    assert f"exit code {code}" in err
    assert not nothing_left(space)


def test_an_interrupted_run_leaves_nothing(space):
    with space.running("-n", 2, command=["sleep", "300"]) as process:
        wait_until(lambda: len(space.get("pods", "--field-selector=status.phase=Running")["items"]) == 3, 60, "pods")
        process.terminate()
        process.communicate(timeout=90)
        assert process.returncode == 143
    assert not nothing_left(space)


# Says when the process began, when its group was connected, by the clock that all pods share.
CONNECT = """
import time; start = time.time()
import ctypes, os
from pushpull import _capi
core = _capi.core()
store = ctypes.c_void_p()
code = core.pushpull_create(b"dist_sync_pushpull", None, ctypes.byref(store))
print(f"STARTED {start} CONNECTED {time.time()} code {code} {core.pushpull_last_error()}", flush=True)
time.sleep(2)
core.pushpull_close(store)
raise SystemExit(code)
"""


def test_sixteen_pods_connect_soon_after_the_last_has_started(space):
    job = space.start("-n", 16, "--set", "kubernetes.cpu=50m", "--set", "kubernetes.memory=256Mi",
                      "--set", "kubernetes.shared_memory=16Mi", command=["python", "-c", CONNECT])
    found = re.findall(r"STARTED ([0-9.]+) CONNECTED ([0-9.]+) code 0", job.wait_complete())
    assert len(found) == 16
    seconds = max(float(end) for _, end in found) - max(float(start) for start, _ in found)
    report("16 pods are connected, after the last has started", f"{seconds:.1f} s")
