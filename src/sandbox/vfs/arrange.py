"""Decides how each directory is provided: by the kernel if possible, through FUSE if Python must see each operation.

| asked for | without hooks | with hooks, or beneath a FUSE mount |
|---|---|---|
| direct mount | bind | bind (never hooked) |
| memory | tmpfs | FUSE, `MemoryProvider` |
| real_fs, readonly | bind | FUSE, `RealFSProvider` |
| overlay of memory or real_fs over real_fs | overlayfs | FUSE, `OverlayProvider` |
| the user's own provider | FUSE | FUSE |

The result is in terms any engine can build: binds and scratch directories, then the guest's mount operations.
"""

from __future__ import annotations

import os

from sandbox.config.model import Mount
from sandbox.errors import ConfigError
from sandbox.plan.mount_operations import Fuse, MakeReadOnly, Overlay, Resize, Unmount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sandbox.config.model import Vfs
    from sandbox.plan.mount_operations import Operation
    from sandbox.vfs.provider import Guard, Provider

    Emit = Callable[[str, str, int], None]

# Where the sources of mounts are; removed before any tenant exists. Short, because mount options have only 255 bytes.
STAGING = "/.vfs"
DEVICE = f"{STAGING}-fuse"
TAKEN = ("/", "/dev", "/proc", "/sys", "/run")


class Arrangement:
    """What the engine and the guest must do, and what is served from here once the guest is ready."""

    def __init__(self) -> None:
        self.binds: list[tuple[str, str, bool]] = []  # source, target, writable
        self.scratch: list[tuple[str, int]] = []  # a tmpfs of its own: path, mode
        self.layers: list[Operation] = []  # overlays on what is shown
        self.fuse: list[Operation] = []  # what is served from here
        self.writable: list[str] = []
        self.served: dict[str, Provider] = {}  # name of the guest's device -> what is behind it
        self.device: tuple[str, str] | None = None  # host and inside path of the FUSE device
        self.shown: list[tuple[str, str, bool]] = []  # the host's directories among them: source, target, writable
        self.ways: dict[str, str] = {}  # inside path -> how it is provided, for people


def take_providers(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Provider]]:
    """Splits a caller's config into plain data and the provider objects it holds under `vfs.mounts`."""
    mounts = (config.get("vfs") or {}).get("mounts") or {}
    own = {path: one for path, one in mounts.items() if hasattr(one, "readdir")}
    if not own:
        return dict(config), {}
    plain = {path: {"type": "custom"} if path in own else one for path, one in mounts.items()}
    return {**config, "vfs": {**config["vfs"], "mounts": plain}}, own


def arrange(
    vfs: Vfs,
    own: Mapping[str, Provider] | None = None,
    *,
    hooks: object | None = None,
    emit: Emit | None = None,
    guard: Callable[[str], Guard] | None = None,
) -> Arrangement:
    """Decides how every directory of `vfs` is provided. Raises ConfigError. Opens host directories only for FUSE.

    `guard(directory)`: the rules about host files, which also apply to what is served from here.
    """
    result = Arrangement()
    own = {_place(path): one for path, one in (own or {}).items()}
    wanted, direct_places = _wanted(vfs)
    hooked = _is_hooked(hooks)
    served = {
        place
        for place, mount in wanted.items()
        if place in own or (place not in direct_places and (hooked or not _kernel_can(mount, place, own)))
    }
    tops = [place for place in served if not any(_inside(place, other) for other in served)]
    for place in sorted(wanted):
        top = next((one for one in tops if place == one or _inside(place, one)), None)
        if top is None:
            _by_kernel(result, place, wanted[place], wanted)
        elif top == place:
            group = {one: wanted[one] for one in wanted if one == top or _inside(one, top)}
            _by_fuse(result, top, group, own, hooks if hooked else None, emit)
    if guard is not None:
        for provider in result.served.values():
            provider.guard(guard)
    if result.served:
        result.fuse.append(Unmount(DEVICE))
    return result


def _wanted(vfs: Vfs) -> tuple[dict[str, Mount], set[str]]:
    """Every directory by its place inside, and the places of direct mounts among them. Raises ConfigError."""
    wanted: dict[str, Mount] = {}
    for path, direct in vfs.direct_mounts.items():
        wanted[_place(path)] = Mount(type="real_fs", host_path=direct.host_path, readonly=direct.readonly)
    direct_places = set(wanted)
    for path, mount in vfs.mounts.items():
        place = _place(path)
        if place in wanted:
            raise ConfigError("is mounted twice", path=f"vfs.mounts.{path}")
        wanted[place] = mount
    return wanted, direct_places


def overlay_project(result: Arrangement, root: str, state: str, name: str = "project") -> None:
    """Mounts an overlay on the project at `root` (already bound read-only); changes are kept in `state`."""
    lower, upper = f"{STAGING}-{name}", f"{STAGING}-{name}-changes"
    result.binds += [(root, lower, False), (state, upper, True)]
    _kernel_overlay(result, root, lower, upper)
    result.ways[root] = "overlayfs"


# By the kernel


def _by_kernel(result: Arrangement, place: str, mount: Mount, wanted: Mapping[str, Mount]) -> None:
    for other, around in wanted.items():
        if around.type == "overlay" and _inside(place, other):
            raise ConfigError(
                "is inside the overlay {other!r}, which would hide it", other=other, path=f"vfs.mounts.{place}"
            )
    writable = not (mount.readonly or mount.type == "readonly")
    if mount.type == "memory":
        result.scratch.append((place, 0o755))
        if mount.size:
            result.layers.append(Resize(place, mount.size))
        if mount.readonly:
            result.layers.append(MakeReadOnly(place))
        result.ways[place] = "tmpfs"
    elif mount.type in ("real_fs", "readonly"):
        result.binds.append((_host_path(mount, place), place, writable))
        result.shown.append(result.binds[-1])
        result.ways[place] = "bind" if writable else "read-only bind"
    else:
        _overlay(result, place, mount)
    if writable:
        result.writable.append(place)


def _overlay(result: Arrangement, place: str, mount: Mount) -> None:
    upper, lower = _layers(mount, place)
    number = len(result.ways)
    below, above = f"{STAGING}-{number}l", f"{STAGING}-{number}u"
    result.binds.append((_host_path(lower, f"{place}.lower"), below, False))
    result.shown.append((result.binds[-1][0], place, False))
    if upper.type == "memory":
        result.scratch.append((above, 0o755))
        if upper.size:
            result.layers.append(Resize(above, upper.size))
    else:
        result.binds.append((_host_path(upper, f"{place}.upper"), above, True))
        changes = os.path.join(result.binds[-1][0], "upper")
        if os.path.isdir(changes):
            result.shown.append((changes, place, False))
    _kernel_overlay(result, place, below, above)
    if mount.readonly:
        result.layers.append(MakeReadOnly(place))
    result.ways[place] = "overlayfs"


def _kernel_overlay(result: Arrangement, place: str, lower: str, state: str) -> None:
    result.layers += [Overlay(place, lower, state), Unmount(lower), Unmount(state)]


# Through FUSE


def _by_fuse(
    result: Arrangement,
    top: str,
    group: Mapping[str, Mount],
    own: Mapping[str, Provider],
    hooks: object | None,
    emit: Emit | None,
) -> None:
    from sandbox.vfs.fuse.mount import open_device
    from sandbox.vfs.hooks import HookedProvider

    # Checked before anything is built, for a clear error and nothing half made.
    os.close(open_device())
    result.device = ("/dev/fuse", DEVICE)
    name = f"fuse:{len(result.served)}"
    provider = _provider(group, own, top)
    result.served[name] = HookedProvider(provider, hooks, mount=top, emit=emit) if hooks or emit else provider
    # A directory to mount on, created while that is possible. Until the mount, looking into it does not block.
    result.scratch.append((top, 0o755))
    result.fuse.insert(0, Fuse(top, DEVICE, name, provider.readonly))
    if not provider.readonly:
        result.writable.append(top)
    for place in group:
        result.ways[place] = "FUSE"


def _provider(group: Mapping[str, Mount], own: Mapping[str, Provider], top: str) -> Provider:
    made = {place: own.get(place) or provider_of(mount, place) for place, mount in group.items()}
    if len(made) == 1:
        return made[top]
    from sandbox.vfs.router import MountRouter

    return MountRouter({place[len(top) :] or "/": one for place, one in made.items()})


def provider_of(mount: Mount, place: str) -> Provider:
    """The provider that a `mounts` entry describes. Raises ConfigError."""
    from sandbox.vfs.memory import DEFAULT_SIZE, MemoryProvider
    from sandbox.vfs.overlay import OverlayProvider
    from sandbox.vfs.readonly import ReadonlyProvider
    from sandbox.vfs.realfs import RealFSProvider

    made: Provider
    if mount.type == "memory":
        made = MemoryProvider(size=mount.size or DEFAULT_SIZE)
    elif mount.type in ("real_fs", "readonly"):
        made = RealFSProvider(_host_path(mount, place))
    elif mount.type == "overlay":
        upper, lower = _layers(mount, place)
        if upper.type == "real_fs":
            changes = os.path.join(_host_path(upper, f"{place}.upper"), "upper")
            os.makedirs(changes, exist_ok=True)
            upper = Mount(type="real_fs", host_path=changes)
        made = OverlayProvider(provider_of(upper, f"{place}.upper"), provider_of(lower, f"{place}.lower"))
    else:
        raise ConfigError("type custom needs a provider object in its place (Python only)", path=f"vfs.mounts.{place}")
    return ReadonlyProvider(made) if mount.readonly or mount.type == "readonly" else made


# What was asked


def _is_hooked(hooks: object | None) -> bool:
    if hooks is None:
        return False
    from sandbox.vfs.hooks import has_hooks

    return has_hooks(hooks)


def _kernel_can(mount: Mount, place: str, own: Mapping[str, Provider]) -> bool:
    if mount.type == "custom":
        if place not in own:
            raise ConfigError("type custom needs a provider object (Python only)", path=f"vfs.mounts.{place}")
        return False
    if mount.type != "overlay":
        return True
    upper, lower = _layers(mount, place)
    return upper.type in ("memory", "real_fs") and lower.type in ("real_fs", "readonly")


def _layers(mount: Mount, place: str) -> tuple[Mount, Mount]:
    if mount.lower is None:
        raise ConfigError("an overlay needs `lower`, the directory under it", path=f"vfs.mounts.{place}")
    upper = Mount.read(mount.upper, f"vfs.mounts.{place}.upper") if mount.upper else Mount(type="memory")
    return upper, Mount.read(mount.lower, f"vfs.mounts.{place}.lower")


def _host_path(mount: Mount, place: str) -> str:
    where = f"vfs.mounts.{place}.host_path"
    if not mount.host_path:
        raise ConfigError("type {type} needs `host_path`", type=mount.type, path=where)
    path = os.path.realpath(os.path.expanduser(mount.host_path))
    if not os.path.isdir(path):
        raise ConfigError("{host_path!r} is not a directory on the host", host_path=mount.host_path, path=where)
    if path != os.path.abspath(os.path.expanduser(mount.host_path)):
        from sandbox.guards.planted_links import refuse_planted

        refuse_planted(mount.host_path, where)
    return path


def _place(path: str) -> str:
    """A mount point in canonical form. Raises ConfigError when it cannot be used."""
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise ConfigError("must be an absolute path without `..`", path=f"vfs.mounts.{path}")
    place = os.path.normpath("/" + path.lstrip("/"))
    if place in TAKEN or place.startswith(("/dev/", "/proc/", "/sys/", STAGING)):
        raise ConfigError("is reserved for the sandbox itself", path=f"vfs.mounts.{path}")
    return place


def _inside(path: str, other: str) -> bool:
    return path.startswith(other + "/")
