"""How the command behaves towards people and shells: help, completions, manual page, colours, typos."""

import os
import pty
import shutil
import subprocess

import pytest

from launching import pushpull_command

COMMANDS = ["run", "config", "check", "completion", "man"]


def options_of(launcher, command):
    text = launcher.run(command, "--help").out
    return {word.rstrip(",") for line in text.splitlines() for word in line.split()[:2]
            if word.startswith("--")} | {word for line in text.splitlines() for word in
                                         line.strip().split(" ")[0].split(",") if word.startswith("--")}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(launcher, command):
    done = launcher.run(command, "--help")
    assert done.returncode == 0
    assert f"Usage: pushpull {command}" in done.out and "Examples:" in done.out
    assert done.err == ""


def test_exit_codes_are_in_the_help(launcher):
    assert "75" in launcher.run("run", "--help").out and "124" in launcher.run("run", "--help").out
    assert "Exit code: 0" in launcher.run("check", "--help").out


@pytest.mark.parametrize("words, near", [
    (["chek"], "check"), (["complete"], "completion"), (["run", "--hots", "a", "--", "true"], "--hosts"),
    (["run", "--log-dri=x", "--", "true"], "--log-dir"), (["check", "--jsn"], "--json")])
def test_typos_get_a_suggestion(launcher, words, near):
    done = launcher.run(*words)
    assert done.returncode == 2
    assert f"did you mean '{near}'?" in done.err and done.out == ""


def complete(line):
    """What bash would offer behind a line."""
    words = line.split(" ")
    script = (f'source <("{pushpull_command()}" completion bash)\n'
              f'COMP_WORDS=({" ".join(word or chr(39) * 2 for word in words)}); '
              f'COMP_CWORD={len(words) - 1}; _pushpull; printf "%s\\n" "${{COMPREPLY[@]}}"')
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_flags_and_values(launcher):
    assert set(complete("pushpull ")) >= set(COMMANDS)
    assert "shim" not in complete("pushpull ")
    assert complete("pushpull ch") == ["check"]
    assert set(complete("pushpull run --host")) == {"--hosts", "--hostfile"}
    assert "slurm" in complete("pushpull run --engine ")
    assert complete("pushpull check --js") == ["--json"]
    assert "--part" not in complete("pushpull check --")


def test_bash_completes_files_of_the_workers_command(launcher, tmp_path, monkeypatch):
    (tmp_path / "training.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert "training.py" in complete("pushpull run -- python train")
    assert "training.py" in complete("pushpull run -c train")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_flag_is_in_every_completion(launcher, shell):
    script = launcher.run("completion", shell)
    assert script.returncode == 0
    for command in ("run", "check", "config"):
        flags = options_of(launcher, command)
        assert {"--hosts", "--backend", "--config"} <= flags
        for flag in flags:
            assert flag.lstrip("-") in script.out, (command, flag)
    program = shutil.which(shell)
    if program:
        checked = subprocess.run([program, "-n"], input=script.out, text=True, capture_output=True)
        assert checked.returncode == 0, checked.stderr


def test_unknown_shell(launcher):
    done = launcher.run("completion", "tcsh")
    assert done.returncode == 2 and "known are bash, zsh, fish" in done.err


def test_manual_page_is_made_of_the_same_text(launcher):
    page = launcher.run("man")
    assert page.returncode == 0 and page.out.startswith(".TH PUSHPULL 1")
    plain = page.out.replace("\\-", "-").replace("\\e", "\\")
    for command in ("run", "check", "config"):
        for flag in options_of(launcher, command):
            assert flag in plain, flag
    checked = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=page.out, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def through_a_terminal(arguments, env):
    main, side = pty.openpty()
    job = subprocess.Popen([pushpull_command(), *arguments], stdin=subprocess.DEVNULL, stdout=side,
                           stderr=subprocess.DEVNULL, env=env)
    os.close(side)
    seen = b""
    while True:
        try:
            chunk = os.read(main, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    job.wait(timeout=60)
    os.close(main)
    return seen


def test_colours_only_on_a_terminal(launcher):
    arguments = ["check", "-n", "1", "--backend", "self"]
    env = {**launcher.environment(), "TERM": "xterm"}
    env.pop("NO_COLOR", None)
    assert b"\x1b[32mpass" in through_a_terminal(arguments, env)
    assert b"\x1b[" not in through_a_terminal(arguments, {**env, "NO_COLOR": "1"})
    assert "\x1b[" not in launcher.run(*arguments, env={"TERM": "xterm"}).out
