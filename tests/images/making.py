"""Images for tests, made of a few of this machine's programs: layers, layouts and archives as others write them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

PROGRAMS = ("sh", "cat", "ls", "id", "touch", "rm", "mkdir", "env", "ln", "readlink", "stat", "mv", "rmdir", "chmod")
TIME = 1_700_000_000
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def file(name: str, content: bytes = b"", mode: int = 0o644, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    """An ordinary file of a layer."""
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(content), mode, TIME
    for key, value in more.items():
        setattr(member, key, value)
    return member, content


def entry(name: str, kind: bytes, link: str = "", mode: int = 0o755, **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    """Anything else."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode, member.mtime = kind, link, mode, TIME
    for key, value in more.items():
        setattr(member, key, value)
    return member, b""


def directory(name: str, mode: int = 0o755) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, tarfile.DIRTYPE, mode=mode)


def link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, tarfile.SYMTYPE, target, 0o777)


def hard_link(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, tarfile.LNKTYPE, target)


def tar(entries: Iterable[tuple[tarfile.TarInfo, bytes]], format: int = tarfile.PAX_FORMAT) -> bytes:
    """A layer."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=format) as archive:
        for member, content in entries:
            archive.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return made.getvalue()


@cache
def system() -> bytes:
    """A layer with a shell and a few programs."""
    found: dict[str, str] = {}
    for name in PROGRAMS:
        path = os.path.realpath(shutil.which(name, path="/usr/bin:/bin") or name)
        found[f"usr/bin/{name}"] = path
        told = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for word in told.split():
            if word.startswith("/") and os.path.exists(word):
                found[word.lstrip("/")] = os.path.realpath(word)
    entries = [
        directory("usr"),
        directory("usr/bin"),
        directory("etc"),
        directory("tmp", 0o1777),
        directory("root", 0o700),
    ]
    entries += [link("bin", "usr/bin"), file("etc/os-release", b"ID=test\n")]
    entries.append(file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/srv:/bin/sh\n"))
    entries.append(file("etc/group", b"root:x:0:\nweb:x:34:\n"))
    entries += (file(name, Path(path).read_bytes(), 0o755) for name, path in sorted(found.items()))
    return tar(entries)


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def config_of(layers: Sequence[bytes], said: Mapping[str, Any] | None = None, arch: str = ARCH) -> bytes:
    """An image's configuration."""
    rootfs = {"type": "layers", "diff_ids": [digest(one) for one in layers]}
    return json.dumps({"architecture": arch, "os": "linux", "config": said or {}, "rootfs": rootfs}).encode()


def compressed(layer: bytes) -> bytes:
    return gzip.compress(layer, 1, mtime=0)


class Blobs:
    """The blobs of a layout, by digest, and how a manifest is made of them."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}

    def add(self, data: bytes, kind: str, **more: object) -> dict[str, Any]:
        self.data[digest(data)] = data
        return {"mediaType": kind, "digest": digest(data), "size": len(data), **more}

    def image(
        self,
        layers: Sequence[bytes],
        said: Mapping[str, Any] | None = None,
        *,
        arch: str = ARCH,
        pack: Any = compressed,
    ) -> dict[str, Any]:
        """Adds an image; returns its descriptor."""
        config = self.add(config_of(layers, said, arch), "application/vnd.oci.image.config.v1+json")
        kind = "application/vnd.oci.image.layer.v1.tar+gzip"
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [self.add(pack(one), kind) for one in layers],
        }
        platform = {"os": "linux", "architecture": arch}
        return self.add(json.dumps(manifest).encode(), manifest["mediaType"], platform=platform)  # type: ignore[arg-type]

    def index(self, entries: Sequence[Mapping[str, Any]]) -> bytes:
        return json.dumps({"schemaVersion": 2, "manifests": list(entries)}).encode()

    def layout(self, place: Path, entries: Sequence[Mapping[str, Any]]) -> Path:
        """Writes an OCI layout."""
        (place / "blobs" / "sha256").mkdir(parents=True)
        (place / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        (place / "index.json").write_bytes(self.index(entries))
        for name, data in self.data.items():
            (place / "blobs" / "sha256" / name.removeprefix("sha256:")).write_bytes(data)
        return place


def layout(place: Path, layers: Sequence[bytes], said: Mapping[str, Any] | None = None, **more: Any) -> Path:
    """An OCI layout of one image."""
    blobs = Blobs()
    return blobs.layout(place, [blobs.image(layers, said, **more)])


def docker_archive(path: Path, layers: Sequence[bytes], said: Mapping[str, Any] | None = None) -> Path:
    """What `docker save` wrote before it wrote OCI layouts."""
    config = config_of(layers, said)
    name = f"{digest(config).removeprefix('sha256:')}.json"
    entries = [file(name, config)]
    entries += (file(f"{at}/layer.tar", one) for at, one in enumerate(layers))
    listed = [{"Config": name, "RepoTags": ["x:1"], "Layers": [f"{at}/layer.tar" for at, _ in enumerate(layers)]}]
    entries.append(file("manifest.json", json.dumps(listed).encode()))
    path.write_bytes(tar(entries))
    return path


def tree(root: str | Path) -> dict[str, str]:
    """What is beneath a directory: kind, mode and content of everything."""
    found: dict[str, str] = {}
    for where, names, files in os.walk(root):
        for name in (*names, *files):
            path = os.path.join(where, name)
            try:
                info = os.lstat(path)
            except PermissionError:
                continue  # of a directory that can only be listed
            if os.path.islink(path):
                told = f"-> {os.readlink(path)}"
            elif os.path.isdir(path):
                told = f"d{info.st_mode & 0o7777:o}"
            elif os.path.isfile(path):
                readable = os.access(path, os.R_OK)
                told = f"{info.st_mode & 0o7777:o} {Path(path).read_bytes()[:60] if readable else None!r}"
            else:
                told = f"?{info.st_mode:o}"
            found[os.path.relpath(path, root)] = told
    return found
