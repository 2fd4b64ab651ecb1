"""Finding an image on this machine. Cheap to import: a start needs hardly anything else of this package.

    <cache>/images/by-digest/<hex>/root       the files, as they are shown read-only inside
                                  image.json  what the image says about itself
                                  run         of that, what a start needs; its lock says that the image is in use
                   names/<name>               a link to one of them
                   blobs/<hex>                downloads that may be needed again; `.part` is incomplete
                   .making-<random>/          being unpacked into, and locked meanwhile

An entry appears and disappears by one rename, so it is never incomplete, even if its maker is killed. If two processes
make the same entry, the first wins, and both can use it. This module never changes anything; `manage.py` does.
"""

from __future__ import annotations

import fcntl
import os

from sandbox.config.home import cache_directory
from sandbox.errors import NotFound
from sandbox.guest import cbor
from sandbox.images.image import Image


def directory() -> str:
    """The directory of the store."""
    return os.path.join(cache_directory(), "images")


def by_digest(digest: str) -> str:
    """The path of an image in the store, whether or not it exists."""
    return os.path.join(directory(), "by-digest", digest.removeprefix("sha256:"))


def name_file(name: str) -> str:
    """The path of a name, which must be in its usual spelling."""
    return os.path.join(directory(), "names", name.replace("%", "%25").replace("/", "%2F"))


def usual_name(asked: str) -> str:
    """The usual spelling of a name or reference, without a pinned digest."""
    name = asked.partition("@")[0]
    host, slash, path = name.partition("/")
    of_registry = slash and ("." in host or ":" in host or host == "localhost")
    return f"{host.lower()}/{path}:latest" if of_registry and ":" not in path else name


HOST = "../host"  # the link target of a name that stands for the host's own system


def means_host(asked: str) -> bool:
    """Whether this name stands for the host's own system."""
    try:
        return os.readlink(name_file(usual_name(asked))) == HOST
    except (OSError, ValueError):
        return False


def find(asked: str) -> Image:
    """The image of this name or reference, or of the digest that it is pinned to. It is held until `release` is called.
    Raises NotFound."""
    pinned = asked.partition("@")[2]
    path = by_digest(pinned) if pinned.removeprefix("sha256:").isalnum() else name_file(usual_name(asked))
    for _ in range(3):  # it may be replaced meanwhile
        try:
            entry = os.path.realpath(path, strict=True)
            lock = os.open(f"{entry}/run", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            break
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.path.exists(f"{entry}/run"):
            told = cbor.decode(os.read(lock, 4 << 20))
            image = Image(asked, f"{entry}/root", told["config"], told["digest"])
            image.hold(lock)
            return image
        os.close(lock)
    raise NotFound("there is no image {name} on this machine", name=ascii(asked)[:200])


def has(digest: str) -> bool:
    """Whether the store has an image of this digest."""
    return os.path.exists(f"{by_digest(digest)}/run")
