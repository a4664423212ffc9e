"""pushpull config, and what is said about wrong input."""

import json
import pathlib

import jsonschema
import pytest
import yaml

from launching import ROOT

CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.fixture
def schema(launcher):
    done = launcher.run("config", "--schema")
    assert done.returncode == 0
    schema = json.loads(done.out)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def test_there_are_configs():
    assert {path.name for path in CONFIGS} >= {"local.yaml", "mpi.yaml", "gloo-redis.yaml"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_config_fits_the_schema_and_loads(launcher, schema, path):
    jsonschema.validate(yaml.safe_load(path.read_text()), schema)
    done = launcher.run("config", "-c", path)
    assert done.returncode == 0, done.err
    assert f"# {path}:" in done.out


def test_schema_refuses_what_the_loader_refuses(schema):
    for wrong in ({"backnd": "gloo"}, {"workers": 0}, {"log": "loud"}, {"redis": {"start": "yes"}},
                  {"rank": 0}, {"secret": "x"}, {"launch": {"restarts": "many"}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_effective_values_and_their_origin(launcher, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("job: from-file\nlaunch:\n  env:\n    A: '1'\n")
    done = launcher.run("config", "-c", file, "-n", 4, "--json", env={"PUSHPULL_LOG": "debug"})
    values = json.loads(done.out)
    assert values["workers"] == {"value": "4", "origin": "flag --workers"}
    assert values["log"] == {"value": "debug", "origin": "environment PUSHPULL_LOG"}
    assert values["job"] == {"value": "from-file", "origin": f"{file}:1"}
    assert values["launch.env"]["value"] == {"A": "1"}
    assert values["backend"]["origin"] == "default"


def test_output_of_config_is_a_config(launcher, tmp_path):
    first = launcher.run("config", "-c", ROOT / "configs" / "gloo-redis.yaml", "-n", 3)
    (tmp_path / "again.yaml").write_text(first.out)
    again = json.loads(launcher.run("config", "-c", tmp_path / "again.yaml", "--json").out)
    assert again["backend"]["value"] == "gloo-redis"
    assert again["workers"]["value"] == "3"
    assert again["launch.env"]["value"] == {"OMP_NUM_THREADS": "1"}


@pytest.mark.parametrize("arguments, said", [
    ([], "COMMAND"),
    (["rn"], "unknown command 'rn'; did you mean 'run'?"),
    (["run", "-n", 2], "no command given; write it after --"),
    (["run", "--backand", "gloo", "--", "true"], "unknown flag '--backand'; did you mean '--backend'?"),
    (["run", "--backend", "glo", "--", "true"],
     "unknown backend 'glo' (flag --backend); known are gloo, gloo-redis, mpi, self"),
    (["run", "-n", "two", "--", "true"], "flag --workers: 'two' is not a whole number"),
    (["run", "-n", 0, "--", "true"], "flag --workers: 0 is not between 1 and 65536"),
    (["run", "-n"], "--workers: 1 required N missing"),
    (["run", "--backend", "gloo-redis", "--", "true"], "backend gloo-redis needs to know its Redis server"),
    (["run", "--backend", "gloo-redis", "--rendezvous", "tcp://a:1", "--", "true"],
     "the rendezvous URL is 'tcp://a:1' (flag --rendezvous)"),
    (["run", "--rendezvous", "a:1", "--", "true"], "flag --rendezvous: 'a:1' is not a URL"),
    (["run", "--rendezvous", "redis://u:pw@a:1", "--", "true"],
     "flag --rendezvous: a password belongs neither on a command line"),
    (["run", "--backend", "mpi", "--engine", "local", "--", "true"], "the mpi backend needs an MPI starter"),
    (["run", "--backend", "self", "-n", 2, "--", "true"], "backend self is for one worker, but 2"),
    (["run", "-c", "/nonexistent.yaml", "--", "true"], "'/nonexistent.yaml' cannot be read"),
    (["run", "--set", "tuning.chunk=2", "--", "true"], "unknown setting 'tuning.chunk'"),
    (["run", "--set", "chunk_bytes", "--", "true"], "'chunk_bytes' is not of the form key=value"),
    (["run", "--set", "secret=x", "--", "true"], "'secret' does not belong on a command line"),
    (["run", "--log-dir", "/proc/none", "--", "true"], "cannot make the log folder '/proc/none'"),
    (["config", "extra"], "config takes no command"),
])
def test_wrong_usage_is_named(launcher, arguments, said):
    done = launcher.run(*arguments)
    assert done.returncode == 2
    assert said in done.err
    assert "terminate" not in done.err


def test_wrong_file_is_named_with_line_and_column(launcher, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text("workers: 2\nrendezvous:\n  uri: tcp://a:1\n")
    done = launcher.run("run", "-c", file, "--", "true")
    assert done.returncode == 2
    assert f"{file}:3:3: unknown key 'rendezvous.uri'; did you mean 'rendezvous.url'?" in done.err


def test_help_and_version(launcher):
    assert launcher.run("--version").out.startswith("pushpull ")
    for arguments in (["--help"], ["run", "--help"], ["config", "--help"]):
        done = launcher.run(*arguments)
        assert done.returncode == 0 and "Usage: pushpull" in done.out
    assert "shim" not in launcher.run("--help").out
