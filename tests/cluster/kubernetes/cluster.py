"""The test cluster, a namespace in it, and jobs that run there."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[3]
HERE = pathlib.Path(__file__).resolve().parent
CONFIG = ROOT / "configs" / "kubernetes.yaml"
IMAGE_FILE = pathlib.Path(os.environ.get("PUSHPULL_IMAGE_FILE", ROOT / "build" / "image" / "pushpull.tar"))
FOLDER = os.environ.get("KUBE_FOLDER", "/tmp/kube-test")


def pushpull_command():
    return os.environ.get("PUSHPULL_COMMAND", str(pathlib.Path(sys.executable).parent / "pushpull"))


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.2)
    return value


def report(name, value):
    """A measured figure: printed, and kept for docs/kubernetes.md."""
    line = f"{name}: {value}"
    print(line)
    with open(ROOT / "build" / "kubernetes-figures.txt", "a") as file:
        file.write(line + "\n")


class Cluster:
    """Up while the tests run. With KUBE_KEEP=1 it stays for the next run."""

    def __init__(self):
        self.environment = {**os.environ, "KUBE_FOLDER": FOLDER}
        subprocess.run([HERE / "up"], env=self.environment, check=True)
        self.run("ctr", "images", "import", IMAGE_FILE)

    def run(self, *words, input=None, check=True, timeout=120, env=None):
        """A command in the cluster's network -> its standard output."""
        done = subprocess.run([f"{FOLDER}/in", *map(str, words)], input=input, text=True, capture_output=True,
                              timeout=timeout, env={**self.environment, **(env or {})})
        assert not check or done.returncode == 0, f"{words}: {done.stderr}\n{done.stdout}"
        return done.stdout

    def new_space(self):
        return Space(self, f"test-{uuid.uuid4().hex[:8]}")

    def close(self):
        if os.environ.get("KUBE_KEEP") != "1":
            subprocess.run([HERE / "down"], env=self.environment, check=True)


class Space:
    """A namespace that only takes pods that keep to the strictest of the pod security standards."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.name = name
        level = ["pod-security.kubernetes.io/enforce=restricted", "pod-security.kubernetes.io/warn=restricted"]
        cluster.run("kubectl", "create", "namespace", name)
        cluster.run("kubectl", "label", "namespace", name, *level)

    def kubectl(self, *words, **options):
        return self.cluster.run("kubectl", "-n", self.name, *words, **options)

    def get(self, *words):
        return json.loads(self.kubectl("get", *words, "-o", "json"))

    def manifest(self, *flags, command):
        done = subprocess.run([pushpull_command(), "manifest", "-c", CONFIG, *map(str, flags), "--", *command],
                              text=True, capture_output=True, check=True)
        return done.stdout

    def apply(self, text):
        self.kubectl("apply", "--validate=strict", "-f", "-", input=text)

    def start(self, *flags, command, job="digits"):
        self.apply(self.manifest("--job", job, *flags, command=command))
        return Job(self, job)

    @contextlib.contextmanager
    def running(self, *flags, command):
        """pushpull run --engine kubernetes, as a process; ended with the block."""
        words = [f"{FOLDER}/in", pushpull_command(), "run", "-c", CONFIG, "--engine", "kubernetes", "--namespace",
                 self.name, *map(str, flags), "--", *command]
        process = subprocess.Popen(words, env=self.cluster.environment, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.communicate(timeout=90)

    def volume(self, folder):
        """A claim named `models` on a folder of the node, which the pods' user may write."""
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, 1000, 1000)
        os.chmod(folder, 0o2775)  # folders that the kubelet makes in it, as root, get its mode and group
        size = {"storage": "1Gi"}
        volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": self.name},
                  "spec": {"capacity": size, "accessModes": ["ReadWriteMany"], "storageClassName": self.name,
                           "hostPath": {"path": str(folder)}}}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"},
                 "spec": {"resources": {"requests": size}, "accessModes": ["ReadWriteMany"],
                          "storageClassName": self.name}}
        self.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [volume, claim]}))

    def close(self):
        # Else jobs and the end of their namespace may wait for each other.
        self.kubectl("delete", "jobs", "--all", "--cascade=foreground", "--timeout=60s", check=False)
        self.kubectl("delete", "namespace", self.name, "--timeout=90s", check=False)
        self.cluster.run("kubectl", "delete", "persistentvolume", self.name, "--ignore-not-found", check=False)


class Job:
    def __init__(self, space, name):
        self.space = space
        self.name = name
        self.selector = f"app.kubernetes.io/instance={name},app.kubernetes.io/component=worker"

    def pods(self):
        """-> pods of the workers by rank, the newest where there are several."""
        found = {}
        for pod in self.space.get("pods", "-l", self.selector)["items"]:
            rank = int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])
            newest = found.get(rank)
            if newest is None or pod["metadata"]["creationTimestamp"] >= newest["metadata"]["creationTimestamp"]:
                found[rank] = pod
        return found

    def wait_running(self, count, seconds=120):
        def running():
            pods = self.pods()
            return len([p for p in pods.values() if p["status"]["phase"] == "Running"]) == count and pods
        return wait_until(running, seconds, f"{count} pods of {self.name} run")

    def logs(self):
        """-> all output of all pods that are still known, by time: [pod/NAME/worker] TIME TEXT."""
        text = self.space.kubectl("logs", "-l", self.selector, "--tail=-1", "--max-log-requests=64", "--timestamps",
                                  "--prefix", check=False)
        return "\n".join(sorted(text.splitlines(), key=lambda line: (line.split(" ", 2) + [""])[1]))

    def wait_for_log(self, text, seconds=240, count=1):
        try:
            return wait_until(lambda: self.logs().count(text) >= count, seconds, f"{text!r} in the logs")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}\n{self.space.kubectl('get', 'pods')}") from None

    def wait_complete(self, seconds=400):
        """-> the logs, when all workers have ended well."""
        def ended():
            conditions = self.space.get("job", self.name)["status"].get("conditions", [])
            return {c["type"]: c for c in conditions if c["status"] == "True"}
        conditions = wait_until(lambda: {"Complete", "Failed"} & ended().keys() and ended(), seconds, "the job ends")
        logs = self.logs()
        assert "Complete" in conditions, f"{conditions}\n{logs}"
        return logs


def accuracy(logs):
    found = re.findall(r"test accuracy: ([0-9.]+)", logs)
    return float(found[-1]) if found else 0.0
