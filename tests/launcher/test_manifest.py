"""pushpull manifest: what is printed is what Kubernetes takes, exactly quoted, with no secret where others read."""

import json
import re

import kubernetes_validate
import pytest
import yaml

from manifests import KUBERNETES, every_kind

# The oldest that is supported, one in the middle, the newest that the tests' schemas know for sure.
KUBERNETES_VERSIONS = ["1.29", "1.32", "1.34"]

# Texts that readers of YAML, the shell, or Kubernetes itself like to change.
NASTY = ["", " ", "yes", "NO", "on", "null", "~", "true", "1", "1.0", "010", "0x1F", "1e3", "12:30:45",
         "2024-01-01", "1_000", ".inf", "=", "<<", "- a", "a: b", "a:", "#c", "a #b", "it's", 'say "x"',
         "back\\slash", "tab\there", "two\nlines", "end\n", "\n", "a\n\n  b\nc\n", "line\rfeed", "ünïcödé",
         "emoji 🙂", "\x1b[31m", "$HOME", "$(HOME)", "$$(HOME)", "$$", "${A}", "$", "%d", "{a: b}", "[a]",
         "@at", "`cmd`", "!tag", "&anchor", "*alias", "|", ">", "x" * 5000]


def expand(text, variables=None):
    """What Kubernetes makes of a text in a command or value: $(NAME) is replaced, $$ is one $."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda match: "$" if match[0] == "$$" else
                  (variables or {}).get(match[1], match[0]), text)


@pytest.fixture
def manifest(launcher):
    def run(*arguments, command=("python", "train.py"), env=None):
        done = launcher.run("manifest", *arguments, "--", *command, env=env)
        assert done.returncode == 0, done.err
        run.text, run.said = done.out, done.err
        return [document for document in yaml.safe_load_all(done.out) if document]
    return run


def refused(launcher, *arguments, command=("true",), env=None):
    done = launcher.run("manifest", *arguments, "--", *command, env=env)
    assert done.returncode == 2, done.out
    assert not done.out
    return done.err


def the(kind, objects, suffix=""):
    found = [o for o in objects if o["kind"] == kind and o["metadata"]["name"].endswith(suffix)]
    assert len(found) == 1 or suffix == "", found
    return found[0]


def worker(objects):
    return the("Job", objects)["spec"]["template"]["spec"]["containers"][0]


def environment(objects):
    return {entry["name"]: entry["value"] for entry in worker(objects)["env"]}


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_everything_fits_the_schemas_of_kubernetes(manifest, version):
    for name, flags in every_kind():
        objects = manifest(*flags)
        assert {o["kind"] for o in objects} >= {"Job", "Service", "ConfigMap", "NetworkPolicy"}, name
        for document in objects:
            kubernetes_validate.validate(document, version, strict=True)


def test_the_schemas_would_notice(manifest):
    objects = manifest("-c", KUBERNETES)
    job = the("Job", objects)
    job["spec"]["completionMod"] = job["spec"].pop("completionMode")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, KUBERNETES_VERSIONS[-1], strict=True)


def test_the_job(manifest):
    objects = manifest("-c", KUBERNETES, "-n", 3)
    spec = the("Job", objects)["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert spec["backoffLimitPerIndex"] == 6 and spec["maxFailedIndexes"] == 0
    disrupted, bug = spec["podFailurePolicy"]["rules"]
    assert disrupted["action"] == "Ignore" and disrupted["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert bug["action"] == "FailJob"
    assert bug["onExitCodes"] == {"containerName": "worker", "operator": "NotIn", "values": [75, 137, 143]}
    pod = spec["template"]["spec"]
    assert pod["enableServiceLinks"] is False and pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert worker(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert environment(objects)["PUSHPULL_SIZE"] == "3"
    # Host names of the pods need a headless Service of the same name.
    service = the("Service", objects, "digits")
    assert service["spec"]["clusterIP"] == "None" and pod["subdomain"] == "digits"
    labels = spec["template"]["metadata"]["labels"]
    for o in objects:
        if o["metadata"]["name"] == "digits" and o["kind"] in ("Service", "NetworkPolicy"):
            wanted = o["spec"].get("selector") or o["spec"]["podSelector"]["matchLabels"]
            assert wanted.items() <= labels.items()


def test_restarts(manifest):
    def restarts(*flags):
        return the("Job", manifest("-n", 2, "--image", "a:1", *flags))["spec"]["backoffLimitPerIndex"]

    assert restarts() == 6
    assert restarts("--restarts", 2) == 2
    assert restarts("--restarts", 0) == 0


def test_only_the_jobs_pods_get_in(manifest):
    objects = manifest("-c", KUBERNETES)
    policies = [o["spec"] for o in objects if o["kind"] == "NetworkPolicy"]
    workers = {"app.kubernetes.io/instance": "digits", "app.kubernetes.io/component": "worker"}
    assert len(policies) == 2
    for policy in policies:
        assert policy["policyTypes"] == ["Ingress"]
        for rule in policy["ingress"]:
            assert rule["from"] == [{"podSelector": {"matchLabels": workers}}] and rule["ports"]


def test_the_configuration_is_one_for_workers(manifest, launcher, tmp_path):
    objects = manifest("-c", KUBERNETES, "--set", "tuning.chunk_bytes=2KiB", "--log", "info")
    text = the("ConfigMap", objects)["data"]["pushpull.yaml"]
    (tmp_path / "pushpull.yaml").write_text(text)
    done = launcher.run("config", "-c", tmp_path / "pushpull.yaml", "--json")
    values = {path: value["value"] for path, value in json.loads(done.out).items()}
    assert values["rendezvous.url"] == "redis://digits-redis:6379/0"
    assert (values["tuning.chunk_bytes"], values["log"], values["rendezvous.timeout"]) == ("2KiB", "info", "10m")
    assert values["secret_file"] == "/run/secrets/pushpull/secret"


@pytest.mark.parametrize("text", NASTY, ids=range(len(NASTY)))
def test_every_text_arrives_as_it_was(manifest, tmp_path, text):
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps({"launch": {"env": {"VALUE": text}},
                                "kubernetes": {"image": "a:1", "annotations": {"note": text, "true": text}}},
                               ensure_ascii=False))
    objects = manifest("-c", file, command=("sh", "-c", text))
    assert [expand(word) for word in worker(objects)["command"]] == ["sh", "-c", text]
    assert expand(environment(objects)["VALUE"]) == text
    annotations = the("Job", objects)["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"note": text, "true": text}
    assert all(type(key) is str for key in annotations)


def test_secrets_are_in_secrets_only(manifest):
    first = manifest("-c", KUBERNETES)
    assert "the Secret 'digits' in this output holds a secret that was made for it" in manifest.said
    secret = the("Secret", first)["stringData"]
    assert set(secret) == {"secret", "redis-password"} and all(len(v) == 64 for v in secret.values())
    assert len(set(secret.values())) == 2
    assert not any(value in manifest.said for value in secret.values())
    rest = json.dumps([o for o in first if o["kind"] != "Secret"])
    assert not any(value in rest for value in secret.values())
    assert the("Secret", manifest("-c", KUBERNETES))["stringData"] != secret


def test_given_secrets_go_into_the_secret(manifest):
    given = {"PUSHPULL_SECRET": "hush: it's \"mine\"", "PUSHPULL_REDIS_PASSWORD": "pass $(word)"}
    objects = manifest("-c", KUBERNETES, env=given)
    assert the("Secret", objects)["stringData"] == {
        "secret": given["PUSHPULL_SECRET"], "redis-password": given["PUSHPULL_REDIS_PASSWORD"]}
    assert not any(value in json.dumps([o for o in objects if o["kind"] != "Secret"]) for value in given.values())


def test_a_secret_that_is_there_is_only_named(manifest):
    objects = manifest("-c", KUBERNETES, "--set", "kubernetes.secret=mine")
    assert not [o for o in objects if o["kind"] == "Secret"]
    for pod in (the("Job", objects), the("Deployment", objects)):
        volumes = pod["spec"]["template"]["spec"]["volumes"]
        assert [v["secret"]["secretName"] for v in volumes if "secret" in v] == ["mine"]


def test_a_redis_that_is_there(manifest):
    objects = manifest("--backend", "gloo-redis", "-n", 2, "--image", "a:1", "--rendezvous", "redis://server:6379/1",
                       "--set", "redis.user=trainer", env={"PUSHPULL_REDIS_PASSWORD": "pw"})
    assert {o["kind"] for o in objects} == {"Secret", "ConfigMap", "NetworkPolicy", "Service", "Job"}
    settings = yaml.safe_load(the("ConfigMap", objects)["data"]["pushpull.yaml"])
    assert settings["rendezvous"]["url"] == "redis://server:6379/1"
    assert settings["redis"]["user"] == "trainer"


def test_without_redis_they_meet_at_rank_0(manifest):
    objects = manifest("-n", 2, "--image", "a:1", "--job", "My Job_7")
    settings = yaml.safe_load(the("ConfigMap", objects)["data"]["pushpull.yaml"])
    assert settings["rendezvous"]["url"] == "tcp://my-job-7-0.my-job-7:29500"
    assert settings["job"] == "My Job_7"
    policy = the("NetworkPolicy", objects)["spec"]["ingress"][0]["ports"]
    assert {"protocol": "TCP", "port": 29500} in policy


def test_checkpoint_places(manifest):
    def with_checkpoint(url):
        objects = manifest("-n", 2, "--image", "a:1", "--set", f"kubernetes.checkpoint={url}")
        volumes = [v for v in the("Job", objects)["spec"]["template"]["spec"]["volumes"] if v["name"] == "checkpoint"]
        return environment(objects)["PUSHPULL_CHECKPOINT"], volumes, worker(objects)["volumeMounts"]

    path, (volume,), mounts = with_checkpoint("pvc://models/run/7")
    assert path == "/checkpoint" and volume["persistentVolumeClaim"] == {"claimName": "models"}
    assert {"name": "checkpoint", "mountPath": "/checkpoint", "subPath": "run/7"} in mounts
    assert with_checkpoint("nfs://server/a/b")[1][0]["nfs"] == {"server": "server", "path": "/a/b"}
    assert with_checkpoint("hostpath:///srv/x")[1][0]["hostPath"]["path"] == "/srv/x"
    assert with_checkpoint("s3://bucket/run")[:2] == ("s3://bucket/run", [])


def test_metrics_are_announced(manifest):
    objects = manifest("-n", 2, "--image", "a:1", "--set", "kubernetes.metrics_port=9000")
    annotations = the("Job", objects)["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/scrape"] == "true" and annotations["prometheus.io/port"] == "9000"


@pytest.mark.parametrize("arguments, said", [
    ([], "nothing says which image the workers run; write kubernetes.image in the file, or give --image"),
    (["--image", "a b"], "kubernetes.image (flag --image) is 'a b', which is not the name of an image"),
    (["--image", "a", "--backend", "mpi"], "backend mpi (flag --backend) needs an MPI starter"),
    (["--image", "a", "--backend", "gloo-redis"], "write 'redis: {start: true}' to deploy one with the job"),
    (["--image", "a", "--job", "---"], "job (flag --job) has no letter or digit"),
    (["--image", "a", "--job", "j" * 51], "has 51 characters, and 50 are possible"),
    (["--image", "a", "--namespace", "A"], "kubernetes.namespace (flag --namespace) is 'A', which is not the name"),
    (["--image", "a", "--set", "kubernetes.memory=lots"], "is 'lots', which is not a quantity such as 4Gi"),
    (["--image", "a", "--set", "kubernetes.checkpoint=/data"], "write pvc://claim/folder"),
    (["--image", "a", "--set", "kubernetes.checkpoint=s3://u:p@b/x"], "holds a password"),
    (["--image", "a", "--rendezvous", "tcp://h:1"], "names an address, but pods have none before they run"),
    (["--image", "a", "--ports", "29500-29600"], "ports (flag --ports) holds 29500"),
    (["--image", "a", "--set", "kubernetes.metrics_port=29502"], "lies within the ports where workers listen"),
    (["--image", "a", "--backend", "gloo-redis", "--rendezvous", "redis://h/0", "--set", "redis.user=u"],
     "names a user, but nothing gives its password"),
    (["--image", "a", "--hosts", "a:2"], "launch.hosts (flag --hosts) is 'a:2', which means nothing to a Kubernetes Job"),
    (["--image", "a", "--hostfile", "/dev/null"], "launch.hostfile (flag --hostfile) is '/dev/null', which means nothing"),
    (["--image", "a", "--bind", "share"], "launch.bind (flag --bind) is 'share', which means nothing"),
    (["--image", "a", "--forward", "HOME"], "launch.forward (flag --forward) is 'HOME', which means nothing"),
    (["--image", "a", "--starter-args=-p gpu"], "launch.starter_args (flag --starter-args) is '-p gpu', which means"),
    (["--image", "a", "--set", "redis.start=true", "--rendezvous", "redis://h/0"], "exclude each other"),
])
def test_what_cannot_be_is_named(launcher, arguments, said):
    assert said in refused(launcher, *arguments)


def test_environment_of_the_file_is_checked(launcher, tmp_path):
    file = tmp_path / "job.yaml"
    for name, said in (("A B", "'A B', which cannot be the name of a variable"),
                       ("PUSHPULL_SIZE", "PUSHPULL_SIZE, which each worker is given"),
                       ("PUSHPULL_SECRET", "PUSHPULL_SECRET, but a secret belongs in a Secret")):
        file.write_text(json.dumps({"launch": {"env": {name: "1"}}, "kubernetes": {"image": "a"}}))
        assert said in refused(launcher, "-c", file)
    assert "no command given" in launcher.run("manifest", "-c", file).err


def test_what_is_not_utf8_is_refused(launcher):
    done = launcher.run("manifest", "--image", "a", "--", b"\xff".decode("utf-8", "surrogateescape"))
    assert done.returncode == 2 and "is not UTF-8" in done.err


def run_in_pods(launcher, *flags, **options):
    return launcher.run("run", "-c", KUBERNETES, "--engine", "kubernetes", *flags, "--", "python", "train.py", **options)


def test_dry_run_prints_objects_and_hides_secrets(launcher):
    done = run_in_pods(launcher, "--dry-run")
    assert done.returncode == 0, done.err
    objects = [document for document in yaml.safe_load_all(done.out) if document]
    assert the("Secret", objects)["stringData"] == {"secret": "***", "redis-password": "***"}
    # Each run has objects of its own.
    name = the("Job", objects)["metadata"]["name"]
    assert re.fullmatch("digits-[0-9a-f]{8}", name) and name not in run_in_pods(launcher, "--dry-run").out


def test_without_kubectl(launcher):
    done = run_in_pods(launcher, env={"PATH": "/nonexistent"})
    assert done.returncode == 127
    assert "kubectl" in done.err and "--engine kubernetes works through kubectl" in done.err


def test_help_shows_how(launcher):
    done = launcher.run("manifest", "--help")
    assert done.returncode == 0 and "kubectl apply -f -" in done.out
