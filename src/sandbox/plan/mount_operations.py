"""The guest's mount operations (guest/protocol.md, "setup"), one small class each. All paths are inside paths."""

from __future__ import annotations

import os


class Operation:
    """One mount operation. `optional`: a path that does not exist is no error."""

    __slots__ = ("path", "optional")
    kind = ""

    def __init__(self, path: str, *, optional: bool = False) -> None:
        self.path = path
        self.optional = optional

    def more(self) -> dict[str, object]:
        """The keys that only this kind has."""
        return {}

    def wire(self) -> dict[str, object]:
        """As the guest reads it."""
        message = {"kind": self.kind, "path": os.fsencode(self.path), **self.more()}
        if self.optional:
            message["optional"] = True
        return message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


class Tmpfs(Operation):
    """A fresh, empty directory in memory; with `make`, on a path that need not exist."""

    __slots__ = ("mode", "size", "make")
    kind = "tmpfs"

    def __init__(self, path: str, mode: int, size: int, *, make: bool = False, optional: bool = False) -> None:
        super().__init__(path, optional=optional)
        self.mode = mode
        self.size = size
        self.make = make

    def more(self) -> dict[str, object]:
        found: dict[str, object] = {"mode": self.mode, "size": self.size}
        return found | {"make": True} if self.make else found


class Bind(Operation):
    """Shows what is at `source` (also a path inside) at `path`. Bound onto itself, a directory is pinned: a mount point
    cannot be renamed."""

    __slots__ = ("source", "read_only", "make", "device")
    kind = "bind"

    def __init__(
        self,
        path: str,
        source: str,
        *,
        read_only: bool = False,
        make: bool = False,
        device: bool = False,
        optional: bool = False,
    ) -> None:
        super().__init__(path, optional=optional)
        self.source = source
        self.read_only = read_only
        self.make = make
        self.device = device  # works as a device

    def more(self) -> dict[str, object]:
        found: dict[str, object] = {"from": os.fsencode(self.source), "ro": self.read_only}
        for key in ("make", "device"):
            if getattr(self, key):
                found["dev" if key == "device" else key] = True
        return found


class Cover(Operation):
    """Something unreadable over a file or directory. `rule` says why; with a `device` it reports who touches it."""

    __slots__ = ("is_dir", "inode", "rule", "make", "device")
    kind = "mask"

    def __init__(
        self,
        path: str,
        is_dir: bool,
        *,
        rule: str = "",
        inode: int | None = None,
        make: bool = False,
        optional: bool = True,
    ) -> None:
        super().__init__(path, optional=optional)
        self.is_dir = is_dir
        self.inode = inode  # of the file that was judged; 0: any file; None: whatever is there
        self.rule = rule
        self.make = make
        self.device = ""  # of a tripwire

    def more(self) -> dict[str, object]:
        found: dict[str, object] = {"dir": self.is_dir}
        if self.inode is not None:
            found["inode"] = self.inode
        if self.make:
            found["make"] = True
        if self.device:
            found |= {"tripwire": True, "device": os.fsencode(self.device)}
        return found


class Overlay(Operation):
    """The kernel's overlayfs: `lower` stays unchanged, changes go to `state`/upper."""

    __slots__ = ("lower", "state")
    kind = "overlay"

    def __init__(self, path: str, lower: str, state: str) -> None:
        super().__init__(path)
        self.lower = lower
        self.state = state  # holds `upper` and `work`, which the kernel wants on one file system

    def more(self) -> dict[str, object]:
        lower, upper, work = (os.fsencode(one) for one in (self.lower, f"{self.state}/upper", f"{self.state}/work"))
        return {"lower": lower, "upper": upper, "work": work, "make": True}


class CacheOverlay(Operation):
    """overlayfs over one directory, or several whose entries are seen together. If the kernel cannot make it, there is
    none. Its content may be lost when the machine (not the sandbox) crashes."""

    __slots__ = ("lowers", "state")
    kind = "overlay"

    def __init__(self, path: str, lowers: list[str], state: str) -> None:
        super().__init__(path, optional=True)
        self.lowers = lowers
        self.state = state

    def more(self) -> dict[str, object]:
        upper, work = (os.fsencode(f"{self.state}/{name}") for name in ("upper", "work"))
        lowers = [os.fsencode(one) for one in self.lowers]
        return {"lower": lowers, "upper": upper, "work": work, "make": True, "volatile": True}


class Fuse(Operation):
    """A FUSE mount whose descriptor comes back under `name`. Nobody answers on it while the sandbox is built."""

    __slots__ = ("device", "name", "readonly")
    kind = "fuse"

    def __init__(self, path: str, device: str, name: str, readonly: bool = False) -> None:
        super().__init__(path)
        self.device = device
        self.name = name
        self.readonly = readonly

    def more(self) -> dict[str, object]:
        return {"device": os.fsencode(self.device), "name": self.name, "readonly": self.readonly}


class Resize(Operation):
    """Gives a tmpfs another size."""

    __slots__ = ("size",)
    kind = "remount"

    def __init__(self, path: str, size: int) -> None:
        super().__init__(path)
        self.size = size

    def more(self) -> dict[str, object]:
        return {"size": self.size}


class MakeReadOnly(Operation):
    """Makes an existing mount read-only."""

    __slots__ = ()
    kind = "remount"

    def more(self) -> dict[str, object]:
        return {"ro": True}


class Unmount(Operation):
    """Removes a mount, and what it was mounted on."""

    __slots__ = ()
    kind = "umount"

    def more(self) -> dict[str, object]:
        return {"remove": True}


class Link(Operation):
    """A symbolic link, and the directories that lead to it."""

    __slots__ = ("target",)
    kind = "link"

    def __init__(self, path: str, target: str) -> None:
        super().__init__(path)
        self.target = target

    def more(self) -> dict[str, object]:
        return {"target": os.fsencode(self.target)}
