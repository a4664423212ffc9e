"""What measures must itself be right: shape lists, arithmetic, foreign load, failures, the page;
and every kind of case still runs."""
import html.parser
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest

import labhosts
from harness import load, measure, page, plan, publish, results
from harness.peers import Peer, Process, catalogue

BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def load_script(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_models = load_script(os.path.join(BENCH, "models", "make.py"))


# -- shape lists ----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", make_models.MODELS)
def test_shape_lists_are_those_of_the_architectures(model):
    with open(os.path.join(plan.MODELS, f"{model}.txt"), encoding="ascii") as text:
        lines = text.readlines()
    assert lines == make_models.lines(model)
    names = set()
    for line in lines:
        elements, name, shape = line.split()
        assert int(elements) == math.prod(map(int, shape.split("x")))
        names.add(name)
    assert len(names) == len(lines)
    assert sum(int(line.split()[0]) for line in lines) == make_models.TOTALS[model]


@pytest.mark.parametrize("model, tensors", [("resnet50", 161), ("vgg16", 32), ("bert-base", 199)])
def test_numbers_of_tensors(model, tensors):
    assert len(make_models.lines(model)) == tensors


# -- plan -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosts, per_host, rate, milliseconds", [
    (2, 1, "1gbit", 800), (4, 1, "1gbit", 1200), (8, 1, "10gbit", 140), (2, 2, "1gbit", 800)])
def test_the_least_time_on_the_wire(hosts, per_host, rate, milliseconds):
    assert plan.Place(hosts, per_host, rate).wire_us(100_000_000) == pytest.approx(
        milliseconds * 1000)


@pytest.mark.parametrize("suite", plan.SUITES)
def test_suites_name_what_exists(suite):
    groups = plan.SUITES[suite]()
    assert len({group.name for group in groups}) == len(groups)
    for group in groups:
        assert set(group.peers) <= set(catalogue())
        assert set(group.modes) <= set(Peer.modes)
        assert os.path.exists(group.model_path)


# -- statistics and page --------------------------------------------------------------------------


def make_round(median, foreign=0.0):
    return {"median_us": median, "p95_us": median, "best_us": median, "samples": 1, "times_us": [],
            "foreign_cpus": foreign, "cpu_s_per_step": None, "sent_sets": None}


def make_group(*cases, rate=None):
    group = {"name": "g", "title": "A <group>", "hosts": 1, "per_host": 2, "ranks": 2, "rate": rate,
             "model": "resnet50", "iters": 1, "warmup": 0, "cases": list(cases)}
    return group


def make_case(name, medians, mode="tensor", skipped=None):
    peer = catalogue()[name]
    case = results.new_case(peer, mode, 1000, skipped=skipped)
    case["rounds"] = [make_round(median) for median in medians]
    return case


def test_ratios_are_taken_within_a_round():
    # The second round was three times as slow for everyone: the ratio does not move.
    ours, theirs = make_case("pushpull-gloo", [10, 30, 11]), make_case("gloo", [20, 60, 22])
    assert results.ratio(ours, theirs) == 0.5
    assert results.median_us(ours) == 11
    assert results.spread_us(ours) == (10, 30)


def test_the_fastest_peer_is_neither_ours_nor_a_reference():
    group = make_group(make_case("memory-copy", [1]), make_case("pushpull-gloo", [2]),
                       make_case("gloo", [5]), make_case("openmpi", [4], mode="fused"))
    assert results.fastest_peer(group, 1000)["peer"] == "openmpi"
    assert results.yardstick(group)["peer"] == "memory-copy"


def test_reasons_for_skipping_are_gathered():
    group = make_group(make_case("torch", [], skipped="no torch"),
                       make_case("torch", [], mode="fused", skipped="no torch"))
    assert results.skipped(group) == {"no torch": ["torch gloo (Python)"]}
    assert "Not measured: torch gloo (Python): no torch" in results.markdown(
        {"context": {}, "groups": [group]})


class Seen(html.parser.HTMLParser):
    VOID = {"meta", "line", "rect", "circle", "br"}

    def __init__(self):
        super().__init__()
        self.open, self.counts, self.links = [], {}, []

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.links += [value for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_shows_every_round_and_fetches_nothing():
    group = make_group(make_case("memory-copy", [10, 12]), make_case("pushpull-gloo", [16, 18]),
                       make_case("gloo", [900, 950]),
                       make_case("torch", [], skipped="it is <missing>"))
    run = {"context": results.context("tiny"), "groups": [group]}
    text = page.render([run])
    seen = Seen()
    seen.feed(text)
    assert seen.open == []
    assert seen.links == []
    assert "http" not in text and "@import" not in text and "url(" not in text
    assert seen.counts["circle"] == 4  # those of the cut bar lie beyond the axis
    assert seen.counts["svg"] == 1
    assert "A &lt;group&gt;" in text and "it is &lt;missing&gt;" in text
    assert "(cut)" in text  # fifty times the shortest
    assert "memcpy of the same bytes" in text


# -- what README quotes ---------------------------------------------------------------------------


def make_run(date, *groups):
    return {"context": {**results.context("full"), "date": date}, "groups": list(groups)}


def test_published_runs_are_merged_the_later_counts():
    old, new, other = (make_group(make_case("gloo", [median])) for median in (1000, 2000, 3000))
    for group, name in ((old, "host-2"), (new, "host-2"), (other, "host-4")):
        group["name"] = name
    failed = make_group(make_case("gloo", [], skipped="it was not there"))
    run = publish.merge([make_run("2026-01-01", old, other), make_run("2026-01-02", new, failed)])
    assert [group["name"] for group in run["groups"]] == ["host-2", "host-4"]
    assert results.median_us(run["groups"][0]["cases"][0]) == 2000
    assert run["context"]["date"] == "2026-01-02"


def test_the_table_has_the_faster_mode_and_ours_first():
    group = make_group(make_case("gloo", [9000]), make_case("gloo", [5000], mode="fused"),
                       make_case("pushpull-mpi", [2500]), make_case("memory-copy", [1000]))
    group["name"] = "host-2"
    lines = publish.table(make_run("2026-01-01", group)).split("\n")
    assert lines[0] == "| library | level | 1 host, N=2 |"
    assert lines[2:] == ["| **pushpull mpi** | C++ | 2.5 |", "| Gloo | C++ | 5.0 |",
                         "| memcpy, one thread | reference | 1.0 |"]


def test_the_bulk_table_says_how_far_from_the_ideal():
    slow, fast = make_case("dist_sync-1", [33_600_000]), make_case("pushpull-gloo", [5_992_000])
    for case in (slow, fast):
        case["wire_us"] = 5_600_000
    group = make_group(slow, fast)
    assert publish.bulk_table(make_run("2026-01-01", group)) == ""
    group["name"] = "bulk-8"
    assert publish.bulk_table(make_run("2026-01-01", group)).split("\n")[-3:] == [
        "| **pushpull gloo** | C++ | 5.99 | 1.07 |",
        "| MXNet dist_sync, 1 server | MXNet | 33.60 | 6.00 |", ""]


def test_the_section_is_replaced_and_nothing_else():
    group = make_group(make_case("gloo", [9000]))
    group["name"] = "host-2"
    text = f"before\n{publish.BEGIN}\nold\n{publish.END}\nafter\n"
    once = publish.replace_section(text, make_run("2026-01-01", group))
    assert once.startswith("before\n") and once.endswith(f"{publish.END}\nafter\n")
    assert "| Gloo | C++ | 9.0 |" in once and "old" not in once
    assert publish.replace_section(once, make_run("2026-01-01", group)) == once
    with pytest.raises(ValueError, match="README.md has no lines"):
        publish.replace_section("nothing", make_run("2026-01-01", group))


# -- foreign load ---------------------------------------------------------------------------------


SPIN = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]


def test_load_of_others_is_seen_and_ours_is_not():
    with subprocess.Popen(SPIN, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        watch = load.ForeignLoad()
        with subprocess.Popen(SPIN, stdout=subprocess.PIPE) as ours:
            ours.stdout.readline()
            time.sleep(0.5)
            seen = watch.cpus()
            ours.kill()
        other.kill()
    assert seen > 0.05
    assert str(other.pid) in watch.before
    assert not {str(ours.pid), str(os.getpid())} & set(watch.before)


# -- runs that fail -------------------------------------------------------------------------------


class Scripted(Peer):
    def __init__(self, *scripts):
        super().__init__("scripted", "Scripted")
        self.scripts = scripts

    def missing(self):
        return None

    def processes(self, job):
        return [Process(["sh", "-c", script]) for script in self.scripts]


def run_scripts(*scripts, timeout=30.0):
    group = plan.Group("g", "t", plan.Place(0, len(scripts)), (), timeout=timeout)
    return measure.run_once(Scripted(*scripts), group, "tensor")


def test_the_first_failure_ends_the_rest_and_is_told():
    start = time.monotonic()
    with pytest.raises(measure.CaseFailed, match="exit code 5: cannot find the answer"):
        run_scripts("sleep 1000", "echo preparing; echo cannot find the answer; exit 5")
    assert time.monotonic() - start < 20


def test_a_run_without_end_is_ended(tmp_path):
    note = tmp_path / "pid"
    with pytest.raises(measure.CaseFailed, match="no result within 0.5 s: still thinking"):
        run_scripts(f"trap '' TERM; echo still thinking; echo $$ > {note}; "
                    "while :; do sleep 0.1; done", timeout=0.5)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), 0)


def test_ranks_that_outlive_their_starter_are_ended(tmp_path):
    note = tmp_path / "pid"
    script = f"""
import sys; sys.path[:0] = [{BENCH!r}, {os.path.dirname(__file__)!r}]
from harness import measure
import test_bench
measure.adopt_orphans()
try:
    test_bench.run_scripts("setsid sh -c 'echo $$ > {note}; exec sleep 1000' & sleep 0.5; exit 3")
except measure.CaseFailed:
    pass
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_processes(tmp_path, programs, number):
    argv = [sys.executable, os.path.join(BENCH, "run.py"), "--full", "--group", "host-2", "--peer",
            "gloo", "--mode", "fused", "--iters", "100000", "--no-build", "--out", str(tmp_path)]
    assert not catalogue()["gloo"].missing()  # a package that the build needs

    def ranks():
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as environ:
                    if f"BENCH_MARK={tmp_path}".encode() in environ.read():
                        found.append(pid)
            except OSError:
                pass
        return found

    with subprocess.Popen(argv, env={**os.environ, "BENCH_MARK": str(tmp_path)},
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        end = time.monotonic() + 60
        while len(ranks()) < 3 and time.monotonic() < end:
            time.sleep(0.05)
        run.send_signal(number)
        run.wait(30)
    end = time.monotonic() + 30
    while ranks() and time.monotonic() < end:
        time.sleep(0.05)
    assert ranks() == []


def test_missing_figures_are_a_failure():
    with pytest.raises(measure.CaseFailed, match="no figures"):
        run_scripts("echo done")


def test_a_program_that_cannot_start_is_a_failure():
    group = plan.Group("g", "t", plan.Place(0, 1), ())
    peer = Scripted()
    peer.processes = lambda job: [Process(["/no/such/program"])]
    with pytest.raises(measure.CaseFailed, match="cannot start /no/such/program: No such file"):
        measure.run_once(peer, group, "tensor")


# -- programs -------------------------------------------------------------------------------------


def test_a_wrong_sum_is_found(tmp_path):
    workload = load_script(os.path.join(BENCH, "peers", "workload.py"))

    class Forgetful:
        def __init__(self, _, counts):
            self.values = [0.0] * sum(counts)

        def fill(self, value):
            self.values = [value] * len(self.values)

        def equals(self, value):
            return all(each == value for each in self.values)

        def barrier(self):
            pass

        def allreduce(self):
            self.values = [2 * each for each in self.values]
            self.values[-1] -= 1

    sys.argv = ["program", "--mode", "latency", "--sizes", "40", "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="rank 0: a sum is not 3"):
        workload.measure(workload.parse_options(), 0, 2, Forgetful)


def test_tiny_measures_every_kind_of_case(tmp_path, programs):
    done = subprocess.run([sys.executable, os.path.join(BENCH, "run.py"), "--tiny", "--no-build", "--out",
                           str(tmp_path), "--logs", str(tmp_path / "logs")],
                          capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*-tiny.json")
    outcome = json.loads(path.read_text())
    peers = catalogue()
    no_lab = labhosts.why_not()
    for group in outcome["groups"]:
        for case in group["cases"]:
            why = peers[case["peer"]].missing() or (no_lab if group["rate"] else None)
            if why is None:
                assert case["rounds"], f"{group['name']} {case['peer']}: {case['skipped']}"
            else:
                assert case["skipped"] == why
    assert peers["pushpull-gloo"].missing() is None
    assert (tmp_path / "index.html").read_text().count("<svg") >= 2
