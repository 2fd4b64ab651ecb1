"""References to images: `host[:port]/path[:tag][@sha256:…]`, and plain names of images on this machine."""

from __future__ import annotations

import re

from sandbox.errors import ImageError
from sandbox.images import digests

VARIANTS = ("minimal", "standard", "full")

# As in the distribution specification.
_PATH = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_HOST = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]{0,252}[a-zA-Z0-9])?(:[0-9]{1,5})?|\[[0-9a-fA-F:]{2,45}\](:[0-9]{1,5})?")
# The host in the reference is not the host that serves the API.
_SERVED_BY = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}
LONGEST = 512


class Reference:
    """An image in a registry."""

    __slots__ = ("host", "path", "tag", "digest")

    def __init__(self, host: str, path: str, tag: str, digest: str | None) -> None:
        self.host = host
        self.path = path
        self.tag = tag
        self.digest = digest  # pinned

    @property
    def server(self) -> str:
        """The host that serves it."""
        return _SERVED_BY.get(self.host, self.host)

    @property
    def wanted(self) -> str:
        """What to ask the registry for."""
        return self.digest or self.tag

    def __str__(self) -> str:
        return f"{self.host}/{self.path}:{self.tag}" + (f"@{self.digest}" if self.digest else "")


def reference(text: str) -> Reference | None:
    """Parses a reference to a registry's image. None for a plain name; raises ImageError when it is neither."""
    rest, at, digest = text.partition("@")
    host, slash, path = rest.partition("/")
    if not slash or not (any(sign in host for sign in ".:") or host == "localhost"):
        plain_name(text)
        return None
    path, _, tag = path.partition(":") if ":" in path else (path, "", "latest")
    if len(text) > LONGEST or not (_HOST.fullmatch(host) and _PATH.fullmatch(path) and _TAG.fullmatch(tag)):
        raise ImageError("{text} is not a reference to an image: host/path:tag", text=ascii(text[:200]))
    return Reference(host.lower(), path, tag, digests.checked(digest) if at else None)


def plain_name(text: str) -> str:
    """`text`, if it is a valid name for an image on this machine. Raises ImageError otherwise."""
    rest, at, digest = text.partition("@")
    path, colon, tag = rest.partition(":")
    if at:
        digests.checked(digest)
    if text == "host" or len(text) > LONGEST or not _PATH.fullmatch(path) or (colon and not _TAG.fullmatch(tag)):
        raise ImageError(
            "{text} is not a name for an image: small letters, digits, `.`, `-`, `_` and `/`, perhaps `:tag`",
            text=ascii(text[:200]),
        )
    return text
