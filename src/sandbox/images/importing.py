"""Importing images into the store: from a layout, an archive, a tar of a root, or any source of blobs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from sandbox.errors import ImageError
from sandbox.images import digests, manage, store
from sandbox.images.archives import OCI, from_archive, from_directory
from sandbox.images.bounds import Bounds
from sandbox.images.layers import plain_layer
from sandbox.images.oci import ImageLayer, this_architecture
from sandbox.images.unpack import Unpacker

if TYPE_CHECKING:
    from sandbox.images.oci import Blobs, PlatformImage


def import_path(path: str, *, ref: str | None = None, architecture: str | None = None) -> str:
    """Imports an OCI layout (a directory or a tar of one), the output of `docker save`, or a tar of a root. `ref`
    selects one of several images. Returns the digest. Raises ImageError."""
    wanted = architecture or this_architecture()
    source = os.path.realpath(path)
    try:
        if os.path.isdir(source):
            if not os.path.exists(f"{source}/{OCI}"):
                raise ImageError("{path} is not an OCI layout; a directory with a system needs no import", path=path)
            return unpack(*from_directory(source, wanted, ref), source=source)
        with manage.making() as work:
            found = from_archive(source, wanted, Bounds(), ref, work)
        if found is not None:
            return unpack(*found, source=source)
        return import_root(source, {}, architecture=wanted)
    except OSError as problem:
        raise ImageError("{path} cannot be read: {problem}", path=path, problem=problem.strerror) from problem


def import_root(path: str, said: dict[str, Any], *, architecture: str, source: str | None = None) -> str:
    """Imports a tar of a root, which may be compressed. Returns its digest, which is also the image's."""
    digest = digests.of_file(path)
    layer = ImageLayer(digest, os.path.getsize(path), None)
    return _unpacked(digest, [layer], _OneFile(path), said, source or path, architecture)


def unpack(found: PlatformImage, blobs: Blobs, *, source: str) -> str:
    """Unpacks an image whose blobs are available. Returns its digest. Raises ImageError, and leaves nothing behind."""
    architecture = found.architecture if isinstance(found.architecture, str) else this_architecture()
    return _unpacked(found.digest, found.layers, blobs, found.said, source, architecture)


def _unpacked(
    digest: str, layers: list[ImageLayer], blobs: Blobs, said: dict[str, Any], source: str, architecture: str
) -> str:
    if store.has(digest):
        return digest
    bounds = Bounds()
    most = bounds.size
    with manage.making() as place:
        unpacker = Unpacker(f"{place}/root", bounds)
        try:
            for layer in layers:
                with (
                    blobs.open(layer.digest, layer.size) as packed,
                    plain_layer(packed, bounds, place, layer.plain) as tar,
                ):
                    unpacker.layer(tar)
        except BaseException:
            unpacker.close()
            raise
        unpacker.finish()
        size = most - bounds.size
        manage.add(place, digest, said, source=source, architecture=architecture, size=size)
    return digest


class _OneFile:
    """Blobs with a single layer, which is a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def manifest(self, digest: str) -> bytes:
        raise ImageError("{name} is missing in the image", name=digest)

    def read(self, digest: str, most: int) -> bytes:
        return self.manifest(digest)

    def open(self, digest: str, size: int) -> BinaryIO:
        return cast(BinaryIO, digests.Verified(open(self._path, "rb"), digest, size))
