"""What every engine is: something that puts walls around our guest and hands over the line to it.

The guest inside is the same for all engines, so an engine's whole duty is to start it in a place built to the
plan. `tests/engines/conformance.py` is the suite that every engine must pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from sandbox.config.model import Limits
from sandbox.guards.views import Views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sandbox.engines.usage import Usage
    from sandbox.guards.masks import Search
    from sandbox.guest.client import Guest


HOSTNAME = "sandbox"


class Bind:
    """A path of the host's that is seen inside."""

    __slots__ = ("device", "source", "target", "writable")

    def __init__(self, source: str, target: str, writable: bool = False, device: bool = False) -> None:
        self.source = source
        self.target = target
        self.writable = writable
        self.device = device  # works as a device: only for what the guest opens and takes away again

    def __repr__(self) -> str:
        return f"Bind({self.source!r}, {self.target!r}, writable={self.writable})"


class Plan:
    """A place as it is to be built, in terms that every engine understands. Made by `layout.py`."""

    def __init__(self) -> None:
        self.id = ""
        self.walls = True
        self.user = "user"  # whom tenants are inside
        self.uid = 0
        self.gid = 0
        self.directory = "/"  # where commands start
        self.environment: dict[str, str] = {}
        self.binds: list[Bind] = []
        self.scratch: list[tuple[str, int]] = []  # own empty directories: path, mode
        self.scratch_size = 0
        self.links: list[tuple[str, str]] = []  # path, target
        self.files: list[tuple[str, int, bytes]] = []  # written inside: path, mode, content
        self.operations: list[dict[str, object]] = []  # the guest's mount operations
        self.rules: dict[str, str] = {}  # covered path -> the rule that says so
        self.masked = 0  # how many paths are covered, and how many frozen; for the record
        self.frozen = 0
        self.views = Views(())  # the host's trees that tenants see: the project and further paths
        self.hidden: list[str] = []  # directories in them that they do not see
        self.search: Search | None = None  # what was looked at in them, and found
        self.notices: list[str] = []  # what the person is told at the start
        self.writable: list[str] = []  # Landlock's view of where tenants may write
        self.network = True
        self.ports: list[int] = []  # to listen on where nf_tables is missing
        self.loopback_ports: list[int] = []  # of the inside's own loopback, answered by the host
        self.limits = Limits()
        self.pids: int | None = None  # asked for, or the mode's default
        self.count_memory = False  # memory that is no file and not mapped cannot be made

    def show(self, source: str, target: str, writable: bool, device: bool = False) -> None:
        """Makes a path of the host's seen inside."""
        self.binds.append(Bind(source, target, writable, device))

    def freeze(self, target: str) -> None:
        """What is shown at `target` cannot be changed there."""
        for bind in self.binds:
            if bind.target == target:
                bind.writable = False

    def setup(self) -> dict[str, object]:
        """The guest's `setup`, as far as the plan decides it."""
        return {
            "walls": self.walls,
            "uid": self.uid,
            "gid": self.gid,
            "network": self.network,
            "ports": self.ports,
            "loopback_ports": self.loopback_ports,
            "dirs": [[b"/etc", 0o755], [b"/var", 0o755]],
            "files": [[path.encode(), mode, content] for path, mode, content in self.files],
            "mounts": self.operations,
            "writable": [path.encode() for path in self.writable],
            "count_memory": self.count_memory,
        }


class Finding:
    """One thing `sandbox doctor` looked at: is it there, and if not, what would help."""

    __slots__ = ("name", "ok", "detail", "remedy", "needed")

    def __init__(self, name: str, ok: bool, detail: str = "", remedy: str = "", needed: bool = True) -> None:
        self.name = name
        self.ok = ok
        self.detail = detail
        self.remedy = remedy
        self.needed = needed


class Running(ABC):
    """A place that stands: the guest is ready, no tenant has run yet."""

    guest: Guest
    pid: int  # the guest's, as the host sees it
    unheld: str | None = None  # what of a limit that was asked for cannot be held here, in words

    @abstractmethod
    def out_of_memory(self) -> str | None:
        """When tenants were killed for want of memory since the last call: limit and peak in words. Else None."""

    def usage(self) -> Usage:
        """What tenants use now; an engine that cannot tell says so by None."""
        from sandbox.engines.usage import Usage

        return Usage()

    @abstractmethod
    def close(self) -> None:
        """Ends every tenant and gives everything back; returns when nothing is left. Idempotent, never raises."""


class Engine(ABC):
    """A way to build walls."""

    name: str

    @abstractmethod
    def findings(self) -> list[Finding]:
        """What this machine offers this engine. Raises nothing: a problem is a finding."""

    @abstractmethod
    def open(self, arrange: Callable[[], Plan]) -> Running:
        """Builds the place. `arrange` makes the plan; it is called once, while a launcher is already at work.

        Raises EngineUnavailable when this machine cannot build such walls at all, WallError when one of them could
        not be built, LimitUnavailable when a limit cannot be held, and what `arrange` raises. After any of these
        nothing of the engine's is left behind.
        """
