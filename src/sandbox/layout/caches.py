"""The person's package caches, as tenants see them: read-only, under a layer that belongs to the project.

    ~/.sandbox/caches/<device>-<inode of the project>/
        project         the project's path; the set is for that directory at that path only
        lock            the sandbox that holds it uses the layers
        together/upper  what was added; one overlay for as many caches as possible
        go-build/       a cache that tenants get empty

Two overlays cannot share a layer. So of several sandboxes in one project the first gets the kept layers, and the others
get layers of their own, which are removed with them. Every `sandbox run` does all this, hence one module, one overlay.
"""

from __future__ import annotations

import fcntl
import os

from sandbox.config.paths import absolute, is_beneath
from sandbox.plan.mount_operations import CacheOverlay, Tmpfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sandbox.config.caches import Cache
    from sandbox.config.model import Filesystem
    from sandbox.plan.plan import Plan

    Found = tuple[Cache, str]

STAGE = "/.vfs-cache"  # while the place is furnished
LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def shown_caches(found: Sequence[Found], filesystem: Filesystem, home: str, taken: Sequence[str]) -> Iterator[Found]:
    """Which of the caches in `found` to show, each with its path, which is the same inside. `taken`: paths that are
    used otherwise: the project, further paths, mounts, our own directories."""
    if any(is_beneath(home, one) for one in taken):
        return  # the home is the project, or in it: its dot entries are hidden, and the rest belongs to the project
    denied = [absolute(one, filesystem.root) for one in filesystem.deny_read]
    for cache, path in found:
        others = [*taken, *denied, home]
        if is_beneath(home, path) or any(is_beneath(one, path) for one in others):
            continue  # more than a cache
        if not any(is_beneath(path, one) for one in (*taken, *denied)):
            yield cache, path


class KeptLayers:
    """The layers of one sandbox; `close` gives them back."""

    def __init__(self, kept: str, root: str, own: Callable[[], str]) -> None:
        """`kept`: the directory of the kept layers; `root`: the project. `own` is called only if another sandbox uses
        the kept layers, and returns a directory for layers that are not kept. Raises OSError."""
        self._kept = kept
        self._fd = _held(kept, root)
        self._own = None if self._fd >= 0 else own()
        if self._own is not None:
            os.mkdir(self._own, 0o700)

    def _layer(self, name: str) -> str:
        """The directory of one layer, made if need be."""
        state = f"{self._own or self._kept}/{name}"
        _make(state)
        return state

    def close(self) -> None:
        """After the sandbox has ended. Never raises."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        if self._own is not None:
            from sandbox.config.rmtree import remove_tree

            try:
                remove_tree(self._own)
            except OSError:
                pass  # goes with the entry


class KeptCaches(KeptLayers):
    """The layers over package caches."""

    def __init__(self, home: str, root: str, entry: Callable[[], str]) -> None:
        """`entry` returns the sandbox's directory in the registry; called only if needed. Raises OSError."""
        super().__init__(directory_of(home, root), root, lambda: f"{entry()}/caches")

    def furnish(self, plan: Plan, caches: Sequence[Found]) -> None:
        """Adds the caches to the plan: as one overlay, because each costs as much as the rest of the walls' mounts.

        Its lower layers are the directories that hold the caches; only the caches themselves are shown.
        """
        together, apart = _grouped([one for one in caches if not one[0].own], self._kept)
        if together:
            lowers = list(dict.fromkeys(os.path.dirname(path) for _, path in together))
            stage = self._overlay(plan, "together", lowers)
            plan.cached += ((f"{stage}/{os.path.basename(path)}", path) for _, path in together)
        for cache, path in apart:
            plan.cached.append((self._overlay(plan, cache.part, [path]), path))
        for cache, path in (*together, *apart):
            hidden = (f"{path}/{one}" for one in cache.hidden if os.path.isdir(f"{path}/{one}"))
            plan.covers += (Tmpfs(one, 0o700, plan.scratch_size, optional=True) for one in hidden)
        for cache, path in caches:
            if cache.own:  # it starts empty, and such tools let several processes use one directory
                _make(f"{self._kept}/{cache.part}")
                plan.show(f"{self._kept}/{cache.part}", path, True)
            if not any(is_beneath(path, place) for place, _ in plan.scratch):
                plan.scratch.append((path, 0o700))  # what the tool uses where no overlay is possible
                plan.writable.append(path)
            for variable, value in cache.tells.items():
                plan.environment.setdefault(variable, value.replace("{}", path))

    def _overlay(self, plan: Plan, name: str, lowers: list[str]) -> str:
        """Plans one overlay; returns where it is staged."""
        stage = f"{STAGE}-{len(plan.caches)}"
        plan.caches.append(CacheOverlay(stage, lowers, self._layer(name)))
        return stage


def _make(directory: str) -> None:
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass


def _grouped(caches: Sequence[Found], kept: str) -> tuple[list[Found], list[Found]]:
    """The caches that can share one overlay, and the rest.

    The overlay stacks the directories that contain the caches. So none of these may have an entry with another cache's
    name, contain another, or contain the layers.
    """
    together: list[Found] = []
    apart: list[Found] = []
    for one in caches:
        around, name = os.path.split(one[1])
        clash = is_beneath(kept, around) or any(
            other != around
            and (
                is_beneath(other, around)
                or is_beneath(around, other)
                or os.path.lexists(f"{other}/{name}")
                or os.path.lexists(f"{around}/{its}")
            )
            for other, its in (os.path.split(path) for _, path in together)
        )
        mounted = not clash and os.stat(one[1]).st_dev != os.stat(around).st_dev
        (apart if clash or mounted else together).append(one)
    return together, apart


def directory_of(home: str, root: str) -> str:
    """Where a project's layers are."""
    info = os.stat(root)
    return f"{home}/caches/{info.st_dev:x}-{info.st_ino:x}"


def _held(directory: str, root: str) -> int:
    """A descriptor that holds the lock of the project's layers; -1 when another sandbox holds it. Removes layers that
    belong to another project."""
    while True:
        try:
            fd = os.open(f"{directory}/lock", LOCK, 0o600)
        except FileNotFoundError:
            os.makedirs(directory, 0o700, exist_ok=True)
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return -1
        if _is_at(fd, f"{directory}/lock"):
            break
        os.close(fd)  # it was removed before we had it
    if project_of(directory) != root:  # the number of a removed directory was given to this one
        empty(directory)
        with open(f"{directory}/project", "wb") as file:
            file.write(os.fsencode(root))
    return fd


def project_of(directory: str) -> str | None:
    """The project that a set of layers is for."""
    try:
        fd = os.open(f"{directory}/project", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.fsdecode(os.read(fd, 65536))
    finally:
        os.close(fd)


def empty(directory: str) -> None:
    """Removes everything but the lock, which the caller holds."""
    from sandbox.config.rmtree import remove_tree

    for name in os.listdir(directory):
        if name == "project":
            os.unlink(f"{directory}/{name}")
        elif name != "lock":
            remove_tree(f"{directory}/{name}")


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False
