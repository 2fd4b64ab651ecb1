"""Writing an image as an archive that every engine reads: an OCI layout, with what older `docker load`s need."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
import tempfile
from typing import TYPE_CHECKING, BinaryIO

from sandbox.images import digests
from sandbox.images.image import for_start
from sandbox.images.oci import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG = "application/vnd.oci.image.config.v1+json"


def export(root: str, said: Mapping[str, Any], target: str, *, name: str, architecture: str) -> str:
    """Writes the files at `root` as an image of one layer to the file `target`, which appears only when complete.
    Returns the manifest's digest. The same files give the same archive."""
    beside = f"{target}.{os.urandom(4).hex()}"
    try:
        with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(target))) as layer:
            plain, packed = _layer(root, layer)
            digest = _archive(beside, layer, plain, packed, said, name, architecture)
        os.rename(beside, target)
        return digest
    finally:
        if os.path.lexists(beside):
            os.unlink(beside)


class _Hashing(io.RawIOBase):
    """Passes on what is written, and computes its digest."""

    def __init__(self, file: BinaryIO) -> None:
        import hashlib

        self._file = file
        self._hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._hash.update(data)
        return self._file.write(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


def _layer(root: str, file: BinaryIO) -> tuple[str, str]:
    """Writes the layer; returns the digests of its tar and of the compressed tar."""
    packed = _Hashing(file)
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="", compresslevel=6) as zipped:
        plain = _Hashing(zipped)  # type: ignore[arg-type]
        with tarfile.open(fileobj=plain, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            add_tree(tar, root)
    file.flush()
    return plain.digest, packed.digest


def add_tree(tar: tarfile.TarFile, root: str) -> None:
    """Adds the files below `root`, sorted by name and owned by root."""
    first: dict[tuple[int, int], str] = {}
    waiting = [""]
    while waiting:
        where = waiting.pop()
        if where:
            _add(tar, root, where, first)
        path = f"{root}/{where}"
        if stat.S_ISDIR(os.lstat(path).st_mode):
            names = sorted(os.listdir(path), reverse=True)
            waiting += (f"{where}/{name}" if where else name for name in names)


def _add(tar: tarfile.TarFile, root: str, where: str, first: dict[tuple[int, int], str]) -> None:
    path = f"{root}/{where}"
    info = os.lstat(path)
    member = tarfile.TarInfo(where)
    member.mode, member.mtime = stat.S_IMODE(info.st_mode), int(info.st_mtime)
    same = first.setdefault((info.st_dev, info.st_ino), where)
    if stat.S_ISDIR(info.st_mode):
        member.type = tarfile.DIRTYPE
    elif same != where:
        member.type, member.linkname = tarfile.LNKTYPE, same
    elif stat.S_ISLNK(info.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
    elif stat.S_ISFIFO(info.st_mode):
        member.type = tarfile.FIFOTYPE
    elif stat.S_ISREG(info.st_mode):
        member.size = info.st_size
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            tar.addfile(member, file)
        return
    else:
        return  # a device or a socket
    tar.addfile(member)


def _archive(
    target: str, layer: BinaryIO, plain: str, packed: str, said: Mapping[str, Any], name: str, architecture: str
) -> str:
    size = layer.seek(0, os.SEEK_END)
    layer.seek(0)
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": for_start(said),
        "rootfs": {"type": "layers", "diff_ids": [plain]},
    }
    configuration = json.dumps(config, sort_keys=True).encode()
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFESTS[0],
        "config": {"mediaType": _CONFIG, "digest": digests.of(configuration), "size": len(configuration)},
        "layers": [{"mediaType": _LAYER, "digest": packed, "size": size}],
    }
    described = json.dumps(manifest, sort_keys=True).encode()
    digest = digests.of(described)
    entry = {
        "mediaType": MANIFESTS[0],
        "digest": digest,
        "size": len(described),
        "platform": {"os": "linux", "architecture": architecture},
        "annotations": {"org.opencontainers.image.ref.name": name},
    }
    blobs = {one: f"blobs/sha256/{one.removeprefix('sha256:')}" for one in (digest, digests.of(configuration), packed)}
    docker = [{"Config": blobs[digests.of(configuration)], "RepoTags": [_tagged(name)], "Layers": [blobs[packed]]}]
    with tarfile.open(target, "x", format=tarfile.PAX_FORMAT) as tar:
        _add_bytes(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        _add_bytes(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}, sort_keys=True).encode())
        _add_bytes(tar, "manifest.json", json.dumps(docker, sort_keys=True).encode())
        _add_bytes(tar, blobs[digest], described)
        _add_bytes(tar, blobs[digests.of(configuration)], configuration)
        member = tarfile.TarInfo(blobs[packed])
        member.size = size
        tar.addfile(member, layer)
    return digest


def _tagged(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def _add_bytes(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
