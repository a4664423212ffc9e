"""Workers' output: whole lines, tagged, fast; progress bars."""

import collections
import os
import pty
import re
import subprocess
import sys
import time

from launching import ROOT, lines_of

PYTHON = sys.executable


def test_lines_are_never_torn(launcher, engine, tmp_path):
    # Four ranks write lines of many lengths at once, in pieces that end anywhere.
    program = """
import os, random
rank = int(os.environ["PUSHPULL_RANK"])
rng = random.Random(rank)
text = b"".join(b"%d" % rank * rng.choice([1, 10, 79, 500, 5000]) + b"\\n" for _ in range(3000))
while text:
    text = text[os.write(1, text[:rng.randrange(1, 20000)]):]
"""
    with open(tmp_path / "out", "wb") as out:
        done = launcher.run("run", "-n", 4, "--engine", engine, "--", PYTHON, "-c", program, stdout=out)
    assert done.returncode == 0, done.err
    counts = collections.Counter()
    for line in (tmp_path / "out").read_text().splitlines():
        assert re.fullmatch(r"\[(\d)\] \1+", line), line[:200]
        counts[line[1]] += 1
    assert counts == {str(rank): 3000 for rank in range(4)}


def test_very_long_lines_stay_whole(launcher, engine, tmp_path):
    program = """
import os, sys
mark = os.environ["PUSHPULL_RANK"]
for i in range(3):
    sys.stdout.write(mark * 10_000_000 + "\\n")
    sys.stdout.write("short\\n")
"""
    with open(tmp_path / "out", "wb") as out:
        done = launcher.run("run", "-n", 2, "--engine", engine, "--", PYTHON, "-c", program, stdout=out)
    assert done.returncode == 0, done.err
    lines = (tmp_path / "out").read_text().splitlines()
    assert sorted(len(line) for line in lines) == [9] * 6 + [10_000_004] * 6
    for line in lines:
        assert line.endswith("] short") or set(line[4:]) == {line[1]}


def test_output_and_errors_stay_apart(launcher, engine):
    done = launcher.run("run", "-n", 2, "--engine", engine, "--", "sh", "-c", "echo out; echo err >&2")
    for rank in range(2):
        assert lines_of(done.out, rank) == ["out"]
        assert lines_of(done.err, rank) == ["err"]


def test_last_line_without_newline_comes_out(launcher, engine):
    done = launcher.run("run", "-n", 2, "--engine", engine, "--", "printf", "no newline")
    assert [lines_of(done.out, rank) for rank in range(2)] == [["no newline"]] * 2


def test_progress_bars_leave_their_last_state(launcher):
    done = launcher.run("run", "--", "printf", r"10%%\r 50%%\r100%%\nwindows\r\n")
    assert lines_of(done.out, 0) == ["100%", "windows"]


def test_progress_bars_on_a_terminal(launcher):
    master, slave = pty.openpty()
    job = launcher.start("run", "-n", 2, "--", "sh", "-c",
                         r"test $PUSHPULL_RANK = 1 && { sleep 0.6; echo a line; exit; };"
                         r"printf '\r10%%'; sleep 0.3; printf '\r20%%'; sleep 1; printf '\r30%%\n'",
                         stdout=slave, stderr=slave)
    os.close(slave)
    seen = b""
    while True:
        try:
            chunk = os.read(master, 65536)
        except OSError:  # all have closed it
            break
        if not chunk:
            break
        seen += chunk
    os.close(master)
    assert job.wait(timeout=20) == 0
    text = seen.decode()
    assert "[0] 10%" in text and "[0] 20%" in text
    # The other rank's line is written over the bar, which is drawn again below it.
    assert re.search(r"\r\x1b\[K\[1\] a line\r?\n\[0\] 20%", text), repr(text)
    assert text.rstrip().endswith("[0] 30%")


def test_tqdm_runs_through(launcher):
    program = "import tqdm, time\nfor _ in tqdm.tqdm(range(20)): time.sleep(0.01)"
    done = launcher.run("run", "-n", 2, "--", PYTHON, "-c", program)
    assert done.returncode == 0
    for rank in range(2):
        assert len(lines_of(done.err, rank)) == 1 and "20/20" in lines_of(done.err, rank)[0]


# As the producer fills it, so a torn line shows.
def is_whole(line):
    tag, rank, number, filling = line.split(b" ", 3)
    letter = bytes([ord("a") + (int(rank) + int(number)) % 26])
    return tag == b"[%s]" % rank and filling == letter * len(filling)


def test_much_output_passes_whole(launcher, engine, tmp_path):
    """Prints its rate, which is a figure for docs and no assertion: 200 MB/s on an idle machine."""
    lines = int(os.environ.get("PUSHPULL_TEST_LINES", 300_000))
    producer = ROOT / "build" / "release" / "bin" / "line_producer"
    with open(tmp_path / "out", "wb") as out:
        start = time.monotonic()
        done = launcher.run("run", "-n", 4, "--engine", engine, "--", producer, lines, stdout=out)
        seconds = time.monotonic() - start
    assert done.returncode == 0, done.err
    size = (tmp_path / "out").stat().st_size
    print(f"{size / 1e6 / seconds:.0f} MB/s")
    assert size == 4 * ((lines - 1) * 84 + 10_000_004)
    seen = collections.Counter()
    long_lines = 0
    with open(tmp_path / "out", "rb") as text:
        for line in text:
            body = line[:-1]
            # All lines end where they should; every hundredth, and the long ones, are read.
            if len(line) != 84:
                long_lines += 1
                assert len(line) == 10_000_004
            seen[body[1:2]] += 1
            if len(line) != 84 or seen[body[1:2]] % 100 == 0:
                assert is_whole(body), body[:200]
    assert long_lines == 4
    assert seen == {b"%d" % rank: lines for rank in range(4)}
