"""The plan of one sandbox, in phases. Each part adds to the phase that it belongs to; only this file decides the order.

| phase | holds | why then |
|---|---|---|
| `binds`, `scratch`, `cached`, `links` | what is shown | parents before children, whoever added them |
| `layers` | overlays over it | before anything looks inside |
| `covers` | what is hidden and frozen | on top of what is shown |
| `served` | FUSE mounts and tripwires, which a process serves | after all that looks inside: nothing answers yet |
| (the seal) | the root becomes read-only | until then places can be made and removed |
| `after_seal` | what replaces single files of the system | |
"""

from __future__ import annotations

import os

from sandbox.config.model import Limits
from sandbox.plan import HOSTNAME
from sandbox.plan.mount_operations import (
    Bind,
    CacheOverlay,
    Cover,
    Link,
    MakeReadOnly,
    Operation,
    Resize,
    Tmpfs,
    Unmount,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sandbox.config.model import Config


class Shown:
    """A path of the host that is seen inside."""

    __slots__ = ("device", "source", "target", "writable")

    def __init__(self, source: str, target: str, writable: bool = False, device: bool = False) -> None:
        self.source = source
        self.target = target
        self.writable = writable
        self.device = device  # works as a device: only for what the guest opens and then removes

    def __repr__(self) -> str:
        return f"Shown({self.source!r}, {self.target!r}, writable={self.writable})"


class ImageRoot:
    """An image's files at `/`, which nobody changes, with an empty layer in memory above them."""

    __slots__ = ("source", "size")

    def __init__(self, source: str, size: int) -> None:
        self.source = source  # a directory of the host, a real path
        self.size = size  # the most that the layer may take

    def wire(self, stage: str) -> dict[str, object]:
        """As the guest reads it. `upper` and `work` are in the layer that it makes."""
        return {
            "lower": os.fsencode(stage + self.source),
            "upper": b"/.image/upper",
            "work": b"/.image/work",
            "size": self.size,
            "stage": os.fsencode(stage),
        }


class Plan:
    """What an engine builds."""

    def __init__(self) -> None:
        self.id = ""
        self.hostname = HOSTNAME
        self.saved: str | None = None  # a directory that `Running.save` wrote: tenants go on from there
        self.fill: Callable[[int], None] | None = None  # called with a pid inside, when all is built and no tenant runs
        self.walls = True
        self.user = "user"  # who tenants are inside
        self.uid = 0
        self.gid = 0
        self.directory = "/"  # where commands start
        self.environment: dict[str, str] = {}
        self.directories: list[str] = []  # empty ones, in addition to those of what is shown; parents first
        self.files: list[tuple[str, int, bytes]] = []  # written inside: path, mode, content
        self.binds: list[Shown] = []
        self.scratch: list[tuple[str, int]] = []  # own empty directories: path, mode
        self.scratch_size = 0
        self.links: list[tuple[str, str]] = []  # path, target
        self.caches: list[CacheOverlay] = []  # over the host's directories; staged while the binds are made
        self.cached: list[tuple[str, str]] = []  # the parts of them that are shown: source, target
        self.layers: list[Operation] = []
        self.covers: list[Operation] = []
        self.served: list[Operation] = []
        self.after_seal: list[Operation] = []
        self.writable: list[str] = []  # where tenants may write, for Landlock
        self.container_prefix = "sandbox"  # how the container's name begins
        self.network = True
        self.ports: list[int] = []  # to listen on where nf_tables is missing
        self.loopback_ports: list[int] = []  # of the loopback inside, answered by the host
        self.proxy_token: str | None = None  # what tenants show to a gate that is a proxy
        self.config: Config | None = None  # what was asked for, for engines that write rules instead of mounting
        self.limits = Limits()
        self.pids: int | None = None  # asked for, or the mode's default
        self.address_space: int | None = None  # of each process, where no control group counts memory; None: the limit
        self.unix_sockets = True  # tenants can make Unix sockets; not where they see the host's
        self.whole_host = False  # tenants can read everything of the host that is not covered
        self.image: ImageRoot | None = None  # what is at `/` under everything else; None: nothing
        self.sealed = True  # the rest of the root cannot be changed
        self.own_files = "/etc"  # the directory for our own files, which are not the system's
        self.tap: str | None = None  # a network card of the room, for a machine in it
        self.count_memory = False  # memory that is no file and not mapped cannot be made

    @property
    def container_name(self) -> str:
        """What a container engine calls this sandbox's container."""
        return f"{self.container_prefix}-{self.id}"

    def show(self, source: str, target: str, writable: bool, device: bool = False) -> None:
        """Shows a path of the host inside."""
        self.binds.append(Shown(source, target, writable, device))

    def freeze(self, target: str) -> None:
        """Makes what is shown at `target` read-only."""
        for bind in self.binds:
            if bind.target == target:
                bind.writable = False

    def share_memory(self, most: int) -> None:
        """Limits all files in memory to `most` bytes in total: each place for them gets an equal share."""
        sized = [one for one in (*self.layers, *self.covers) if isinstance(one, (Tmpfs, Resize))]
        places = len(self.scratch) + sum(isinstance(one, Tmpfs) for one in sized) + (self.image is not None)
        share = most // max(places, 1) // 4096 * 4096
        self.scratch_size = min(self.scratch_size or share, share)
        for one in (*sized, *([self.image] if self.image is not None else [])):
            one.size = min(one.size or share, share)

    def rules(self) -> dict[str, str]:
        """The covered paths, each with the rule that covers it."""
        covers = (one for one in (*self.covers, *self.served) if isinstance(one, Cover))
        return {one.path: one.rule for one in covers if one.rule}

    def operations(self, stage: str) -> Iterator[Operation]:
        """All operations in their order. `stage`: where the guest sees the host's files meanwhile."""
        if not self.walls:
            return
        shown: list[Operation] = [Tmpfs(path, mode, self.scratch_size, make=True) for path, mode in self.scratch]
        for bind in self.binds:
            source = stage + bind.source
            shown.append(Bind(bind.target, source, read_only=not bind.writable, make=True, device=bind.device))
        for one in self.caches:  # directly from the host's files: overlayfs keeps its layers when `stage` is gone
            yield CacheOverlay(one.path, [stage + lower for lower in one.lowers], stage + one.state)
        shown += (Bind(target, source, make=True, optional=True) for source, target in self.cached)
        # Parents before children, so that a directory mounted inside another is not hidden by it.
        shown.sort(key=lambda one: one.path.split("/"))
        yield from shown
        yield from (Unmount(one.path, optional=True) for one in self.caches)
        yield from (Link(path, target) for path, target in self.links)
        if stage:
            yield Unmount(stage)
        yield from self.layers
        yield from self.covers
        yield from self.served
        if self.sealed:
            # The rest of the root is only mount points, or the image: tenants must not change it.
            yield MakeReadOnly("/")
        yield from self.after_seal

    def setup(self, stage: str = "") -> dict[str, object]:
        """The part of the guest's `setup` message that the plan decides."""
        image = {"image": self.image.wire(stage)} if self.image is not None else {}
        return {
            **image,
            "walls": self.walls,
            "uid": self.uid,
            "gid": self.gid,
            "network": self.network,
            "ports": self.ports,
            "loopback_ports": self.loopback_ports,
            "dirs": [
                [os.fsencode(path), 0o755]
                for path in dict.fromkeys((self.own_files, "/etc", "/var", *self.directories))
            ],
            "files": [[os.fsencode(path), mode, content] for path, mode, content in self.files],
            "mounts": [one.wire() for one in self.operations(stage)],
            "writable": [os.fsencode(path) for path in self.writable],
            "count_memory": self.count_memory,
            "unix_sockets": self.unix_sockets,
            **({"tap": self.tap.encode()} if self.tap is not None else {}),
            **({"hostname": self.hostname.encode()} if self.hostname != HOSTNAME else {}),
        }
