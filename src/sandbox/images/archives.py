"""Images in files: an OCI layout (a directory, or a tar of one) and what `docker save` writes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from sandbox.errors import ImageError
from sandbox.images import digests
from sandbox.images.layers import GZIP, ZSTD, plain_layer
from sandbox.images.oci import DOCUMENT, MOST_LAYERS, ImageLayer, PlatformImage, choose, document, plain_digests
from sandbox.images.tars import members

if TYPE_CHECKING:
    from sandbox.images.bounds import Bounds

MOST_FILES = 10_000
OCI, DOCKER = "index.json", "manifest.json"


class LayoutDirectory:
    """An OCI layout as a directory. A stranger may have put links into it: a file that is a link is not opened."""

    def __init__(self, path: str) -> None:
        self._path = path

    def file(self, name: str) -> tuple[BinaryIO, int, int]:
        """A file of the layout: the open file, the offset where it begins, and its size. Raises ImageError."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = open(os.open(f"{self._path}/{name}", flags), "rb")  # noqa: SIM115 - the caller's
        except OSError:
            raise ImageError("{name} is missing in the image", name=name) from None
        return file, 0, os.fstat(file.fileno()).st_size

    def close(self) -> None:
        pass


class LayoutArchive:
    """The files of a tar, found by name. Links are used only to find other files of the same tar: `docker save` makes
    them for identical layers."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._places: dict[str, tuple[int, int]] = {}
        links: dict[str, str] = {}
        for count, member in enumerate(members(file)):
            if member.size < 0:
                raise ImageError("the archive is damaged ({problem})", problem="a file's size")
            name = os.path.normpath(member.name)
            if member.isreg() and member.sparse is None:
                self._places[name] = (member.offset_data, member.size)
            elif member.issym():
                links[name] = os.path.normpath(os.path.join(os.path.dirname(name), member.linkname))
            if count >= MOST_FILES:
                return  # not an archive of an image, but of files
        self._places |= {name: self._places[target] for name, target in links.items() if target in self._places}

    def has(self, name: str) -> bool:
        return name in self._places

    def file(self, name: str) -> tuple[BinaryIO, int, int]:
        """Like `LayoutDirectory.file`."""
        if name not in self._places:
            raise ImageError("{name} is missing in the image", name=ascii(name)[:200])
        at, size = self._places[name]
        return open(os.dup(self._file.fileno()), "rb"), at, size

    def close(self) -> None:
        self._file.close()


class LayoutBlobs:
    """The blobs of a layout."""

    def __init__(self, layout: LayoutDirectory | LayoutArchive) -> None:
        self._layout = layout

    def manifest(self, digest: str) -> bytes:
        return self.read(digest, DOCUMENT)

    def read(self, digest: str, most: int) -> bytes:
        return digests.require(read_file(self._layout, _blob(digest), most), digest)

    def open(self, digest: str, size: int) -> BinaryIO:
        file, at, found = self._layout.file(_blob(digest))
        if found != size:
            file.close()
            raise ImageError("the content received for {digest} has another digest", digest=digest)
        return cast(BinaryIO, digests.Verified(file, digest, size, at))


class DockerBlobs:
    """The layers in the older format of `docker save`, from before it wrote OCI layouts: named by path, and identified
    by the digests of their tars."""

    def __init__(self, layout: LayoutArchive, names: dict[str, str]) -> None:
        self._layout = layout
        self._names = names

    def manifest(self, digest: str) -> bytes:
        raise ImageError("{name} is missing in the image", name=digest)

    def read(self, digest: str, most: int) -> bytes:
        return self.manifest(digest)

    def open(self, digest: str, size: int) -> BinaryIO:
        file, at, found = self._layout.file(self._names[digest])
        return cast(BinaryIO, _Stretch(file, at, found))


class _Stretch:
    def __init__(self, file: BinaryIO, at: int, size: int) -> None:
        self._file = file
        self._left = size
        file.seek(at)

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data

    def __enter__(self) -> _Stretch:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_file(layout: LayoutDirectory | LayoutArchive, name: str, most: int) -> bytes:
    """The content of a file of a layout. Raises ImageError when it is missing or too long."""
    file, at, size = layout.file(name)
    with file:
        if size > most:
            raise ImageError("the image's description is too long")
        file.seek(at)
        return file.read(size)


def from_directory(path: str, architecture: str, name: str | None = None) -> tuple[PlatformImage, Any]:
    """The image in an OCI layout, and its blobs. Raises ImageError."""
    layout = LayoutDirectory(path)
    blobs = LayoutBlobs(layout)
    return choose(blobs, read_file(layout, OCI, DOCUMENT), architecture, name), blobs


def from_archive(
    path: str, architecture: str, bounds: Bounds, name: str | None, work: str
) -> tuple[PlatformImage, Any] | None:
    """The image in an archive of either kind; None when it is a tar of something else. `work` is a directory on the
    file system that takes the decompressed archive. Raises ImageError."""
    file: BinaryIO = open(path, "rb")  # noqa: SIM115 - the layout's
    start = file.read(4)
    file.seek(0)
    if start[:2] == GZIP or start == ZSTD:
        packed, file = file, plain_layer(file, bounds, work, None)
        packed.close()
    layout = LayoutArchive(file)
    if layout.has(OCI):
        blobs = LayoutBlobs(layout)
        return choose(blobs, read_file(layout, OCI, DOCUMENT), architecture, name), blobs
    if layout.has(DOCKER):
        return _docker(layout, architecture, name)
    layout.close()
    return None


def _docker(layout: LayoutArchive, architecture: str, name: str | None) -> tuple[PlatformImage, Any]:
    try:
        import json

        listed = json.loads(read_file(layout, DOCKER, DOCUMENT))
    except (ValueError, RecursionError):
        listed = None
    images = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if name is not None:
        images = [one for one in images if name in _tags(one)]
    if len(images) != 1:
        tags = [tag for one in images for tag in _tags(one)]
        raise ImageError("there are several images: name one of {names}", names=ascii(", ".join(tags[:10])))
    config, layers = images[0].get("Config"), images[0].get("Layers")
    if not isinstance(config, str) or not isinstance(layers, list) or len(layers) > MOST_LAYERS:
        raise ImageError("the image's manifest has no configuration or no layers")
    data = read_file(layout, os.path.normpath(config), DOCUMENT)
    said = document(data)
    if said.get("architecture") not in (architecture, None):
        raise ImageError("there is no image for {architecture} there", architecture=f"linux/{architecture}")
    plain = plain_digests(said, len(layers))
    names = {digest: os.path.normpath(str(path)) for digest, path in zip(plain, layers, strict=True)}
    return PlatformImage(digests.of(data), said, [ImageLayer(one, 0, one) for one in plain]), DockerBlobs(layout, names)


def _tags(image: dict[str, Any]) -> list[str]:
    said = image.get("RepoTags")
    return [one for one in said if isinstance(one, str)] if isinstance(said, list) else []


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"
