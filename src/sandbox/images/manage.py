"""Managing the images on this machine: adding, listing, naming, removing. `store.py` describes the layout."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sandbox.config.rmtree import remove_tree
from sandbox.errors import ImageError
from sandbox.guest import cbor
from sandbox.images.image import for_start
from sandbox.images.store import HOST, by_digest, directory, find, has, means_host, name_file, usual_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

MAKING, REMOVING = ".making-", ".removing-"
MOST_SAID = 1 << 20  # bytes of an image's `run` file


class StoredImage:
    """An image in the store."""

    __slots__ = ("digest", "path", "names", "said", "size", "made", "source", "architecture")

    def __init__(self, path: str, names: list[str]) -> None:
        with open(f"{path}/image.json", encoding="utf-8") as file:
            told = json.load(file)
        self.path = path
        self.names = names
        self.digest: str = told["digest"]
        self.said: dict[str, Any] = told["config"]
        self.size: int = told["size"]
        self.made: float = told["made"]
        self.source: str = told["source"]
        self.architecture: str = told["architecture"]


def entries() -> list[StoredImage]:
    """All images, the newest first."""
    places: dict[str, list[str]] = {}
    for name, path in _names():
        places.setdefault(path, []).append(name)
    found = []
    try:
        listed = sorted(os.listdir(os.path.join(directory(), "by-digest")))
    except FileNotFoundError:
        return []
    for one in listed:
        path = os.path.join(os.path.realpath(directory()), "by-digest", one)
        if os.path.islink(path):
            continue  # another digest of an image that is listed anyway
        try:
            found.append(StoredImage(path, sorted(places.get(path, []))))
        except (OSError, ValueError, KeyError):
            continue  # it is being removed right now
    return sorted(found, key=lambda one: one.made, reverse=True)


def entry_of(asked: str) -> StoredImage:
    """One image by name, reference or digest. Raises NotFound."""
    image = find(asked)
    try:
        path = os.path.dirname(image.root)
        return StoredImage(path, sorted(name for name, where in _names() if where == path))
    finally:
        image.release()


def _names() -> Iterator[tuple[str, str]]:
    where = os.path.join(directory(), "names")
    try:
        listed = os.listdir(where)
    except FileNotFoundError:
        return
    for name in listed:
        if not name.startswith("."):
            yield unquote(name), os.path.realpath(os.path.join(where, name))


@contextmanager
def making() -> Iterator[str]:
    """A directory to unpack into, with an empty `root` in it. It is removed afterwards unless `add` was called."""
    top = directory()
    os.makedirs(top, 0o700, exist_ok=True)
    place = os.path.join(top, f"{MAKING}{os.urandom(8).hex()}")
    os.mkdir(place, 0o700)
    lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.mkdir(f"{place}/root", 0o755)
        yield place
    finally:
        if os.path.isdir(place):
            remove_tree(place)
        os.close(lock)


def add(place: str, digest: str, said: Mapping[str, Any], *, source: str, architecture: str, size: int) -> None:
    """Moves what was unpacked in `making` into the store, unless the image was added meanwhile."""
    told = {
        "digest": digest,
        "config": said,
        "source": source,
        "architecture": architecture,
        "size": size,
        "made": time.time(),
    }
    with open(f"{place}/image.json", "w", encoding="utf-8") as listed:
        json.dump(told, listed)
    start = cbor.encode({"digest": digest, "config": for_start(said)})
    if len(start) > MOST_SAID:
        raise ImageError("the image's description is too long")
    with open(f"{place}/run", "wb") as file:
        file.write(start)
    _sync(place)  # the image's files must be on disk before its name is
    target = by_digest(digest)
    os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
    try:
        os.rename(place, target)
    except OSError:
        if not has(digest):
            raise
    _sync(os.path.dirname(target))


def _sync(place: str) -> None:
    """Syncs a directory's file system to disk: a power failure must not leave an image with empty files."""
    fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(fd):
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(fd)


def name(digest: str, asked: str) -> None:
    """Names an image of the store. If another image has the name, it loses it."""
    _name(os.path.relpath(by_digest(digest), os.path.dirname(name_file(asked))), asked)


def name_host(asked: str) -> None:
    """Makes a name stand for the host's own system."""
    _name(HOST, asked)


def _name(target: str, asked: str) -> None:
    file = name_file(usual_name(asked))
    os.makedirs(os.path.dirname(file), 0o700, exist_ok=True)
    beside = os.path.join(os.path.dirname(file), f".{os.urandom(8).hex()}")
    os.symlink(target, beside)
    os.rename(beside, file)


def same(other: str, digest: str) -> None:
    """Makes an image findable by another digest as well: that of an index that leads to it."""
    beside = os.path.join(directory(), "by-digest", f".{os.urandom(8).hex()}")
    os.symlink(os.path.basename(by_digest(digest)), beside)
    os.rename(beside, by_digest(other))


def remove(asked: str) -> None:
    """Removes a name, and the image with its last name. A digest removes the image with all of its names.

    Raises NotFound, and ImageError when a sandbox uses the image.
    """
    if means_host(asked):
        os.unlink(name_file(usual_name(asked)))
        return
    find(asked).release()
    pinned = asked.partition("@")[2]
    path = os.path.realpath(by_digest(pinned) if pinned else name_file(usual_name(asked)))
    others = [one for one, where in _names() if where == path and one != usual_name(asked)]
    if others and not pinned:
        os.unlink(name_file(usual_name(asked)))
        return
    if not _take_away(path):
        raise ImageError("a sandbox uses the image {name}", name=asked)
    for one, where in list(_names()):
        if where == path:
            os.unlink(name_file(one))


def _take_away(path: str) -> bool:
    """Removes an entry, unless a sandbox uses it. Returns whether it is gone."""
    try:
        lock = os.open(f"{path}/run", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        gone = os.path.join(directory(), f"{REMOVING}{os.urandom(8).hex()}")
        os.rename(path, gone)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    remove_tree(gone)
    return True


def prune() -> list[str]:
    """Removes unused images that have no name, and what killed imports and downloads left behind. Returns what was
    removed: digests and file names."""
    gone = []
    for entry in entries():
        if not entry.names and _take_away(entry.path):
            gone.append(entry.digest)
    top = directory()
    for one in os.listdir(top) if os.path.isdir(top) else []:
        if one.startswith((MAKING, REMOVING)) and _abandoned(os.path.join(top, one)):
            gone.append(one)
    blobs = os.path.join(top, "blobs")
    for one in os.listdir(blobs) if os.path.isdir(blobs) else []:
        if forget_blob(os.path.join(blobs, one)):
            gone.append(one)
    digests = os.path.join(top, "by-digest")
    others = [os.path.join(digests, one) for one in (os.listdir(digests) if os.path.isdir(digests) else [])]
    for link in (*others, *(name_file(one) for one, _ in _names())):
        if os.path.islink(link) and not os.path.exists(link) and os.readlink(link) != HOST:
            os.unlink(link)
    return gone


def _abandoned(path: str) -> bool:
    return _remove_unless_locked(path, os.O_DIRECTORY, remove_tree)


def forget_blob(path: str) -> bool:
    """Removes a blob, unless it is being downloaded. Those who have it open can still read it."""
    return _remove_unless_locked(path, os.O_NOFOLLOW, os.unlink)


def _remove_unless_locked(path: str, flags: int, remove: Callable[[str], object]) -> bool:
    """Whether it was there, nobody held its lock, and it is removed."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(path)
        return True
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(lock)
