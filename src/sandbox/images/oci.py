"""OCI images: from an index to one platform's manifest, its configuration and its layers.

`Blobs` knows where blobs come from (a directory, an archive, a registry). Every blob is checked against its digest, and
the content of a JSON document is validated before it is used.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from sandbox.errors import ImageError
from sandbox.images import digests
from sandbox.images.bounds import Bounds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import BinaryIO, Protocol

    class Blobs(Protocol):
        """Where blobs come from. What `open` returns is checked against its digest when it is read to its end."""

        def manifest(self, digest: str) -> bytes: ...
        def read(self, digest: str, most: int) -> bytes: ...
        def open(self, digest: str, size: int) -> BinaryIO: ...


DOCUMENT = 4 << 20  # the most bytes of a manifest or a configuration
MOST_LAYERS = 500
NESTED = 3  # indexes in indexes
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class ImageLayer:
    """One layer: the digest of the stored blob and, if the configuration has it, of the tar in it (`plain`)."""

    __slots__ = ("digest", "size", "plain")

    def __init__(self, digest: str, size: int, plain: str | None) -> None:
        self.digest = digest
        self.size = size
        self.plain = plain


class PlatformImage:
    """The image chosen for one platform."""

    def __init__(self, digest: str, document: Mapping[str, Any], layers: list[ImageLayer]) -> None:
        self.digest = digest
        self.layers = layers
        said = document.get("config")
        self.said: dict[str, Any] = said if isinstance(said, dict) else {}
        self.architecture = document.get("architecture")


def this_architecture() -> str:
    """This machine's architecture, as images name it."""
    machine = os.uname().machine
    return ARCHITECTURES.get(machine, machine)


def document(data: bytes) -> dict[str, Any]:
    """Parses a JSON object. Raises ImageError."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ImageError("the image's description is not a JSON object")
    return found


def choose(blobs: Blobs, data: bytes, architecture: str, name: str | None = None) -> PlatformImage:
    """The image in an index or manifest (`data`, which the caller has verified). `name` selects an entry of a layout's
    index. Raises ImageError."""
    for _ in range(NESTED):
        said = document(data)
        if "manifests" not in said:
            return _manifest(blobs, data, said, architecture)
        entry = _entry(said["manifests"], architecture, name)
        data = blobs.manifest(digests.checked(entry.get("digest")))
        name = None
    raise ImageError("the image's index contains only further indexes")


def _entry(listed: object, architecture: str, name: str | None) -> dict[str, Any]:
    entries = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    if name is not None:
        entries = [one for one in entries if _name(one) == name]
    known = [one for one in entries if one.get("mediaType") in (*INDEXES, *MANIFESTS, None)]
    fitting = [one for one in known if _fits(one.get("platform"), architecture)]
    if not fitting:
        raise ImageError("there is no image for {architecture} there", architecture=f"linux/{architecture}")
    if (
        name is None
        and len({str(one.get("digest")) for one in fitting}) > 1
        and len({_name(one) for one in fitting}) > 1
    ):
        names = ", ".join(sorted(ascii(_name(one)) for one in fitting)[:10])
        raise ImageError("there are several images: name one of {names}", names=names)
    return fitting[0]


def _name(entry: Mapping[str, Any]) -> str | None:
    notes = entry.get("annotations")
    name = notes.get("org.opencontainers.image.ref.name") if isinstance(notes, dict) else None
    return name if isinstance(name, str) else None


def _fits(platform: object, architecture: str) -> bool:
    if not isinstance(platform, dict):
        return True  # an index may leave it out; the configuration has it
    return platform.get("os") in ("linux", None) and platform.get("architecture") in (architecture, None)


def _manifest(blobs: Blobs, data: bytes, said: Mapping[str, Any], architecture: str) -> PlatformImage:
    config, listed = said.get("config"), said.get("layers")
    if not isinstance(config, dict) or not isinstance(listed, list) or len(listed) > MOST_LAYERS:
        raise ImageError("the image's manifest has no configuration or no layers")
    configuration = document(blobs.read(digests.checked(config.get("digest")), DOCUMENT))
    if configuration.get("architecture") not in (architecture, None):
        raise ImageError("there is no image for {architecture} there", architecture=f"linux/{architecture}")
    plain = plain_digests(configuration, len(listed))
    layers = [_layer(one, expected) for one, expected in zip(listed, plain, strict=True)]
    Bounds().take(sum(one.size for one in layers))  # checked now: layers are downloaded before they are unpacked
    return PlatformImage(digests.of(data), configuration, layers)


def plain_digests(configuration: Mapping[str, Any], count: int) -> list[str]:
    """The digests of the layers' tars, as the configuration names them."""
    rootfs = configuration.get("rootfs")
    listed = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if not isinstance(listed, list) or len(listed) != count:
        raise ImageError("the image's configuration does not name its layers")
    return [digests.checked(one) for one in listed]


def _layer(entry: object, plain: str) -> ImageLayer:
    said = entry if isinstance(entry, dict) else {}
    size = said.get("size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ImageError("a layer of the image has no size")
    return ImageLayer(digests.checked(said.get("digest")), size, plain)
