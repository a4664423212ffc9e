"""The API server takes everything that `pushpull manifest` prints, without a warning."""

import subprocess

import pytest

from cluster import pushpull_command
from manifests import every_kind

KINDS = dict(every_kind())


@pytest.fixture(scope="module")
def team(cluster):
    cluster.run("kubectl", "create", "namespace", "team-a")
    yield
    cluster.run("kubectl", "delete", "namespace", "team-a")


@pytest.mark.parametrize("name", KINDS)
def test_strict_validation_by_the_server(space, team, name):
    text = subprocess.run([pushpull_command(), "manifest", *map(str, KINDS[name]), "--", "python", "train.py"],
                          check=True, capture_output=True, text=True).stdout
    where = "team-a" if name == "all settings" else space.name
    done = subprocess.run([f"{space.cluster.environment['KUBE_FOLDER']}/in", "kubectl", "-n", where,
                           "apply", "--dry-run=server", "--validate=strict", "-f", "-"],
                          input=text, capture_output=True, text=True, env=space.cluster.environment)
    assert done.returncode == 0, done.stderr
    # A volume of the node is what the strictest pod security standard warns of; the user asked for it.
    if name != "hostpath" and name != "nfs":
        assert "arning" not in done.stderr
    assert "job.batch/" in done.stdout and "networkpolicy.networking.k8s.io/" in done.stdout


def test_a_misspelt_field_would_be_noticed(space):
    text = space.manifest(command=["true"]).replace("completionMode", "completionMod")
    with pytest.raises(AssertionError, match="completionMod"):
        space.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", input=text)
