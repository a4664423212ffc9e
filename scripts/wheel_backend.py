"""Builds the wheel: `pip install .` anywhere (PEP 517, without setuptools).

The libraries go to pushpull/_lib, where the package and the command look for them, the command to the
environment's bin folder. Everything finds its neighbours relative to itself, so the result can be moved.
"""

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
PACKAGE = ROOT / "mxnet_binding" / "python"


def _version():
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(pushpull VERSION ([0-9.]+)", text).group(1)


def _metadata(project):
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {_version()}",
        f"Summary: {project['description']}",
        f"Requires-Python: {project['requires-python']}",
    ]
    lines += [f"Requires-Dist: {requirement}" for requirement in project.get("dependencies", [])]
    for extra, requirements in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {r}; extra == '{extra}'" for r in requirements]
    return "\n".join(lines) + "\n"


def _tag():
    return f"py3-none-{re.sub('[-.]', '_', sysconfig.get_platform())}"


def _build(stage):
    if not (BUILD / "build.ninja").exists():
        subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True)
    subprocess.run(["cmake", "--build", BUILD, "--target", "product"], cwd=ROOT, check=True)
    subprocess.run(
        ["cmake", "--install", BUILD, "--component", "wheel", "--strip", "--prefix", stage],
        cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
    )


class _Wheel:
    """A zip archive with the list of hashes that the format asks for."""

    def __init__(self, path, info):
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._info = info
        self._record = []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self._record.append(f"{name},sha256={digest},{len(data)}")

    def add_folder(self, folder, prefix=""):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                mode = 0o755 if os.access(path, os.X_OK) else 0o644
                self.add(f"{prefix}{path.relative_to(folder).as_posix()}", path.read_bytes(), mode)

    def close(self):
        record = f"{self._info}/RECORD"
        self._zip.writestr(record, "\n".join([*self._record, f"{record},,"]) + "\n")
        self._zip.close()


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = f"{project['name']}-{_version()}"
    info = f"{base}.dist-info"
    name = f"{base}-{_tag()}.whl"
    wheel = _Wheel(pathlib.Path(wheel_directory) / name, info)
    with tempfile.TemporaryDirectory() as temporary:
        stage = pathlib.Path(temporary)
        _build(stage)
        wheel.add_folder(stage / "pushpull", "pushpull/")
        wheel.add_folder(stage / "bin", f"{base}.data/scripts/")
    if PACKAGE.is_dir():
        wheel.add_folder(PACKAGE)
    wheel.add(f"{info}/METADATA", _metadata(project).encode())
    lines = ["Wheel-Version: 1.0", "Generator: pushpull", "Root-Is-Purelib: false", f"Tag: {_tag()}"]
    wheel.add(f"{info}/WHEEL", ("\n".join(lines) + "\n").encode())
    wheel.close()
    return name


def get_requires_for_build_wheel(config_settings=None):
    return []


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    target.mkdir(parents=True, exist_ok=True)
    print(target / build_wheel(target))
