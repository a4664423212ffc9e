"""Manifests of all kinds, for the tests of their text and for those on a cluster."""

import yaml

from launching import ROOT

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
KUBERNETES = ROOT / "configs" / "kubernetes.yaml"

# Every setting of the section `kubernetes`, and those that become part of the Job.
SETTINGS = {
    "kubernetes.namespace": "team-a", "kubernetes.pull_policy": "Always", "kubernetes.pull_secret": "registry",
    "kubernetes.cpu": "500m", "kubernetes.memory": "4Gi", "kubernetes.service_account": "trainer",
    "kubernetes.shared_memory": "1Gi", "kubernetes.user": "2000", "launch.restarts": "2",
    "kubernetes.metrics_port": "9000", "kubernetes.checkpoint": "pvc://models/digits", "launch.timeout": "90m",
    "launch.grace": "20s", "ports": "7000",
}


def flags_for(path):
    """What else a config needs to become a Job: an image, for mpi another backend, and no binding to cores."""
    content = yaml.safe_load(path.read_text())
    flags = [] if "image" in (content.get("kubernetes") or {}) else ["--image", "localhost/any:1"]
    if "bind" in (content.get("launch") or {}):
        flags += ["--bind", "none"]
    return flags + (["--backend", "gloo"] if content.get("backend") == "mpi" else [])


def every_kind():
    """-> name and flags of `pushpull manifest`."""
    for path in CONFIGS:
        yield path.name, ["-c", path, *flags_for(path)]
    yield "all settings", ["-c", KUBERNETES, *[word for name, value in SETTINGS.items()
                                               for word in ("--set", f"{name}={value}")]]
    small = ["--image", "a:1", "-n", 2]
    yield "nfs", [*small, "--set", "kubernetes.checkpoint=nfs://server/models"]
    yield "hostpath", [*small, "--set", "kubernetes.checkpoint=hostpath:///srv/models"]
    yield "object store", [*small, "--set", "kubernetes.checkpoint=s3://bucket/models"]
    yield "secret that is there", ["-c", KUBERNETES, "--set", "kubernetes.secret=mine"]
    yield "one worker", ["--backend", "self", "--image", "a:1"]
