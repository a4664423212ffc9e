"""make test-kubernetes: the image, the cluster, the tests, and their result into docs/kubernetes.md.

    run.py [further arguments for pytest]
    run.py --containerfile [further arguments for pytest]     with the image that the Containerfile makes; needs buildah
"""

import datetime
import os
import pathlib
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as xml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build"
IMAGE = BUILD / "image" / "pushpull.tar"
FIGURES = BUILD / "kubernetes-figures.txt"
REPORT = BUILD / "kubernetes.xml"
DOCUMENT = ROOT / "docs" / "kubernetes.md"


def newest_source():
    """When what is in the image last changed."""
    folders = [BUILD / "release" / "lib", BUILD / "release" / "bin" / "pushpull", ROOT / "mxnet_binding" / "python",
               ROOT / "examples", ROOT / "scripts" / "image"]
    files = [f for folder in folders for f in ([folder] if folder.is_file() else folder.rglob("*"))
             if f.is_file() and "__pycache__" not in f.parts]
    return max(f.stat().st_mtime for f in files)


def build_image():
    if not IMAGE.exists() or IMAGE.stat().st_mtime < newest_source():
        subprocess.run([ROOT / "scripts" / "build_image.sh", "-o", IMAGE], check=True)
    else:
        print(f"pushpull: {IMAGE} is up to date")


def results():
    cases = []
    for case in xml.parse(REPORT).iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        cases.append((case.get("name"), "failed" if failed else "passed", float(case.get("time"))))
    return cases


def write_document():
    cases = results()
    passed = sum(state == "passed" for _, state, _ in cases)
    lines = [f"{datetime.date.today()}, Kubernetes 1.34.4, {os.cpu_count()} cores, {platform.machine()}: "
             f"{passed} of {len(cases)} tests passed in {sum(seconds for *_, seconds in cases):.0f} s.", ""]
    if FIGURES.exists():
        lines += [f"- {line}" for line in FIGURES.read_text().splitlines()] + [""]
    lines += ["| test | result | seconds |", "|---|---|---|"]
    # Parameters of a test that are whole programs are no names.
    lines += [f"| {name if len(name) < 90 else name.split('[')[0]} | {state} | {seconds:.0f} |"
              for name, state, seconds in cases]
    text = DOCUMENT.read_text()
    block = "<!-- result -->\n" + "\n".join(lines) + "\n<!-- end of result -->"
    DOCUMENT.write_text(re.sub("<!-- result -->.*<!-- end of result -->", lambda _: block, text, flags=re.DOTALL))


def main():
    arguments = sys.argv[1:]
    image = IMAGE
    if arguments[:1] == ["--containerfile"]:
        del arguments[0]
        image = IMAGE.with_name("containerfile.tar")
        subprocess.run([HERE / "build_by_containerfile", image], check=True)
    else:
        build_image()
    FIGURES.unlink(missing_ok=True)
    REPORT.unlink(missing_ok=True)
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"--junitxml={REPORT}", "tests/cluster/kubernetes", *arguments],
        cwd=ROOT, env={**os.environ, "PUSHPULL_TEST_KUBERNETES": "1", "PUSHPULL_IMAGE_FILE": str(image)}).returncode
    if REPORT.exists() and len(sys.argv) == 1:
        write_document()
    return code


if __name__ == "__main__":
    sys.exit(main())
