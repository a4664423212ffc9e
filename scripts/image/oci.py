"""Packs a root file system as an OCI image: oci.py ROOT NAME:TAG OUT.tar

The archive is an image layout, which `ctr images import`, `podman load`, `buildah pull oci-archive:` and
`skopeo copy` read. The same files give the same archive.
"""

import hashlib
import json
import pathlib
import platform
import subprocess
import sys
import tempfile

# A Redis of Debian's package and the worker's command start in the same image.
CONFIG = {
    "User": "1000:1000",
    "Env": [
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "PYTHONUNBUFFERED=1",
        "PYTHONDONTWRITEBYTECODE=1",
    ],
    "WorkingDir": "/opt/pushpull",
    "Cmd": ["pushpull", "--help"],
}
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def pack(folder, archive, *extra):
    subprocess.run(["tar", "-C", folder, "--sort=name", "--mtime=@0", "--numeric-owner", *extra,
                    "-cf", archive, "."], check=True)


class Layout:
    """The folder of an image: blobs under their hash, and an index."""

    def __init__(self, folder):
        self.folder = folder
        self.blobs = folder / "blobs" / "sha256"
        self.blobs.mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')

    def add_file(self, path, media_type):
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        target = self.blobs / digest
        path.rename(target)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": target.stat().st_size}

    def add_json(self, value, media_type):
        path = self.folder / "new"
        path.write_text(json.dumps(value, separators=(",", ":")))
        return self.add_file(path, media_type)


def main():
    root, name, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3]).absolute()
    with tempfile.TemporaryDirectory(dir=out.parent) as temporary:
        layout = Layout(pathlib.Path(temporary) / "image")
        layer_file = layout.folder / "layer"
        pack(root, layer_file, "--exclude=./proc/*", "--exclude=./sys/*", "--exclude=./dev/*")
        layer = layout.add_file(layer_file, "application/vnd.oci.image.layer.v1.tar")
        config = layout.add_json(
            {"architecture": ARCHITECTURES[platform.machine()], "os": "linux", "config": CONFIG,
             "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}},
            "application/vnd.oci.image.config.v1+json")
        manifest = layout.add_json(
            {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
             "config": config, "layers": [layer]},
            "application/vnd.oci.image.manifest.v1+json")
        manifest["annotations"] = {"io.containerd.image.name": name,
                                   "org.opencontainers.image.ref.name": name}
        (layout.folder / "index.json").write_text(json.dumps(
            {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
             "manifests": [manifest]}))
        pack(layout.folder, out)


if __name__ == "__main__":
    main()
