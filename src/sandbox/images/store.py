"""Finding an image on this machine. Light to import: a start does this, and hardly anything else with images.

    <cache>/images/by-digest/<hex>/root       the files, as they are shown read-only inside
                                  image.json  what the image says about itself
                                  run         of that, what a start needs; its lock says that the image is in use
                   names/<name>               a link to one of them
                   blobs/<hex>                what was downloaded and may be needed again; `.part` is not complete
                   .making-<random>/          somebody unpacks there, and holds its lock

An entry comes and goes by one rename, so there is never half of one, whenever whoever makes it is killed. Of two who
make the same one at once, the first wins, and both have it. Nothing here is ever changed (`keeping.py`).
"""

from __future__ import annotations

import fcntl
import os

from sandbox.config.home import cache_directory
from sandbox.errors import NotFound
from sandbox.guest import cbor
from sandbox.images.image import Image


def directory() -> str:
    """Where images are kept."""
    return os.path.join(cache_directory(), "images")


def by_digest(digest: str) -> str:
    """The place of an image that is here, or will be."""
    return os.path.join(directory(), "by-digest", digest.removeprefix("sha256:"))


def name_file(name: str) -> str:
    """The place of a name, in its one spelling."""
    return os.path.join(directory(), "names", name.replace("%", "%25").replace("/", "%2F"))


def usual_name(asked: str) -> str:
    """The one spelling of a name or reference, without a pin."""
    name = asked.partition("@")[0]
    host, slash, path = name.partition("/")
    of_registry = slash and ("." in host or ":" in host or host == "localhost")
    return f"{host.lower()}/{path}:latest" if of_registry and ":" not in path else name


HOST = "../host"  # what a name leads to that stands for the host's own system


def means_host(asked: str) -> bool:
    """Whether this name was given to the host's own system."""
    try:
        return os.readlink(name_file(usual_name(asked))) == HOST
    except (OSError, ValueError):
        return False


def find(asked: str) -> Image:
    """The image of this name or reference, or of the digest that it is pinned to: held, until `release` gives it back.
    Raises NotFound when it is not here."""
    pinned = asked.partition("@")[2]
    path = by_digest(pinned) if pinned.removeprefix("sha256:").isalnum() else name_file(usual_name(asked))
    for _ in range(3):  # it may be replaced between two looks
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
    """Whether an image of this digest is here."""
    return os.path.exists(f"{by_digest(digest)}/run")
