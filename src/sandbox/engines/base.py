"""The interface of an engine: it starts at once, builds what the plan says, and returns what then runs.

    started = engine.start()        # starts the launcher
    plan = …                        # meanwhile the caller makes the plan
    started.begin(plan)             # the caller can do other work while the walls are built
    running = started.build(plan)   # walls and limits are in place; no tenant has run yet

`Sandbox` knows an engine only by what is declared here. `tests/engines/conformance.py` is the suite that every engine
passes, and `tests/engines/framed_engine.py` is the smallest engine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import socket
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from sandbox.config.model import Config
    from sandbox.engines.usage import Usage
    from sandbox.guest.guest import Guest
    from sandbox.guest.process import Process
    from sandbox.plan.plan import Plan


class Capabilities:
    """What an engine offers beyond running commands. Asking for anything else is an error."""

    __slots__ = (
        *("walls", "own_root", "namespace", "fuse", "overlay", "tripwires", "gate", "limits", "descriptors"),
        *("checkpoint", "programs", "waits"),
    )

    def __init__(
        self,
        *,
        walls: bool = True,
        own_root: bool = False,
        namespace: bool = False,
        fuse: bool = False,
        overlay: bool = False,
        tripwires: bool = False,
        gate: str = "none",
        limits: bool = False,
        descriptors: bool = True,
        checkpoint: str = "",
        programs: bool = True,
        waits: bool = False,
    ) -> None:
        if own_root and not walls:
            # The guest would mount what the plan shows over the host's own directories.
            raise ValueError("an engine without walls has no root of its own: say own_root=False")
        self.walls = walls
        self.own_root = own_root and walls  # tenants see only what the plan shows; else the host's paths, under rules
        self.namespace = namespace  # `Running.pid` has a mount namespace on this machine: paths can be covered later
        self.fuse = fuse  # this process can serve directories
        self.overlay = overlay  # the kernel's overlayfs: changes stay in a layer of their own
        self.tripwires = tripwires  # covers report that they were touched
        self.programs = programs  # and name the program that touched them; else the record says `guest`
        self.gate = gate  # how connections reach the gate: "sockets", "proxy" (a port on the loopback) or "none"
        self.limits = limits  # memory, processes and the other limits are enforced
        self.checkpoint = checkpoint  # what can be paused and saved: "machine" (all of it), "files", "" (nothing)
        self.waits = waits  # `start()` does most of the work, and its result can wait for a plan: see `pool/`
        self.descriptors = descriptors  # descriptors can be passed in both directions


class Finding:
    """One thing that `sandbox doctor` checked: whether it works, and if not, what would help."""

    __slots__ = ("name", "ok", "detail", "remedy", "needed")

    def __init__(self, name: str, ok: bool, detail: str = "", remedy: str = "", needed: bool = True) -> None:
        self.name = name
        self.ok = ok
        self.detail = detail
        self.remedy = remedy
        self.needed = needed


class Running(ABC):
    """Walls that have been built. No tenant has run yet when an engine returns this."""

    environment: Mapping[str, str] = {}  # variables that tenants need with this engine
    unheld: str | None = None  # a message when part of a limit cannot be enforced here

    # Only where the engine declares the capability:
    pid: int | None = None  # `namespace`: the pid, on this machine, of a process in it
    missed = 0  # how many covers found a different file, or no file, at their path
    tripwires = 0  # how many covers report

    @abstractmethod
    def start(self, request: dict[str, object], name: str, stdio: Sequence[int] = ()) -> Process:
        """Starts a command; `request` is the guest's `exec` request. Raises SandboxClosed."""

    @abstractmethod
    def file(self, operation: str, path: bytes, **more: object) -> tuple[dict[str, Any], list[int]]:
        """One file operation with a tenant's own rights. Raises OSError as the same call outside would."""

    @abstractmethod
    def null(self) -> int | None:
        """A descriptor of the sandbox's /dev/null, where descriptors can cross. The caller must not close it."""

    @abstractmethod
    def take_sockets(self) -> Mapping[str, _socket.socket]:
        """The sockets that the gate accepts connections from, by name. The caller owns them from now on."""

    @abstractmethod
    def take_devices(self) -> dict[str, int]:
        """The mounted FUSE devices, by name. The caller owns them from now on."""

    @abstractmethod
    def dial(self, address: str, port: int) -> socket.socket:
        """A connection to a TCP port that a tenant listens on. Raises OSError."""

    def out_of_memory(self) -> str | None:
        """If tenants were killed for lack of memory since the last call, a message with limit and peak; else None.

        An engine that cannot tell keeps this one.
        """
        return None

    def usage(self) -> Usage:
        """What tenants use now; a value that the engine does not know is None."""
        from sandbox.engines.usage import Usage

        return Usage()

    def alive(self) -> bool:
        """Whether it still runs, as far as we can tell without waiting."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Ends every tenant and releases everything; returns when nothing is left. Idempotent, never raises."""


class Reporting(ABC):
    """What a `Running` also implements when the engine declares `tripwires`."""

    @abstractmethod
    def report_socket(self) -> _socket.socket:
        """Readable when a tripwire has reported, or at the end. Only poll it: `reports` reads from it."""

    @abstractmethod
    def reports(self, patience: float | None = None) -> Iterator[dict[str, Any]]:
        """Yields tripwire reports until the end, or until none came for `patience` seconds. For a single reader."""

    @abstractmethod
    def finish(self) -> None:
        """Ends every tenant; reports can still be read."""


class Pausable(ABC):
    """What a `Running` also implements when the engine declares `checkpoint`."""

    @abstractmethod
    def pause(self) -> None:
        """Suspends every tenant. Raises WallError."""

    @abstractmethod
    def resume(self) -> None:
        """Lets them continue. Raises WallError."""

    def save(self, directory: str) -> list[str]:
        """Writes the state of a paused sandbox, apart from its files, into `directory`, for `Plan.saved`.

        Returns the names of open files that sandboxes started from it will not have. Raises WallError.
        """
        return []


class GuestRunning(Running, Reporting):
    """For an engine that runs our guest. An engine with a second guest for commands overrides `start`."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self.missed = int(guest.have.get("missed", 0))
        self.tripwires = int(guest.have.get("tripwires", 0))

    def start(self, request: dict[str, object], name: str, stdio: Sequence[int] = ()) -> Process:
        return self._guest.start(request, name, stdio)

    def file(self, operation: str, path: bytes, **more: object) -> tuple[dict[str, Any], list[int]]:
        return self._guest.file(operation, path, **more)

    def null(self) -> int | None:
        return self._guest.null

    def alive(self) -> bool:
        return self._guest.alive()

    def take_sockets(self) -> Mapping[str, _socket.socket]:
        return self._guest.take_sockets()

    def take_devices(self) -> dict[str, int]:
        taken, self._guest.devices = self._guest.devices, {}
        return taken

    def dial(self, address: str, port: int) -> socket.socket:
        return self._guest.dial(address, port)

    def report_socket(self) -> _socket.socket:
        return self._guest.report_socket()

    def reports(self, patience: float | None = None) -> Iterator[dict[str, Any]]:
        return self._guest.reports(patience)

    def finish(self) -> None:
        self._guest.finish()

    def stop_tenants(self) -> None:
        """Stops every tenant, but not the guest, which answers for covers. Raises OSError, SandboxClosed."""
        self._guest.pause()

    def let_tenants_go(self) -> None:
        """Lets them continue. Raises OSError, SandboxClosed."""
        self._guest.resume()


class Started(ABC):
    """An engine that has been started and waits for the plan."""

    directory: str | None = None  # without `own_root`: a directory of the tenants' own, for home and temporary files

    def alive(self) -> bool:
        """Whether it still waits, as far as we can tell without asking it."""
        return True

    def begin(self, plan: Plan) -> None:  # noqa: B027 - an engine may have nothing to do before `build`
        """Starts building as much of `plan` as can be built without waiting; `build` does the rest. Optional.

        Raises what `build` raises. If it raises, or anything else fails before `build`, call `abandon`.
        """

    @abstractmethod
    def build(self, plan: Plan) -> Running:
        """Builds what `plan` says. Once only.

        Raises EngineUnavailable when this machine cannot build such walls at all, WallError when one of them could not
        be built, LimitUnavailable when a limit cannot be held. After any of these, the engine leaves nothing behind.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Releases everything when nothing is going to be built. Never raises; idempotent."""


class Engine(ABC):
    """A way to build walls."""

    name: str
    can: Capabilities

    def answers(self) -> bool:
        """Whether it is available, as far as we can tell without building anything. Raises EngineUnavailable."""
        return True

    def ignores(self, config: Config) -> Iterator[str]:
        """Settings of `config` that this engine would ignore: using one is an error. Yields their paths."""
        yield from ()

    def bring_image(self, config: Config) -> None:  # noqa: B027 - most engines have no images of their own
        """Copies the configured image into our store if the engine has it and the store does not. Raises ConfigError,
        ImageError."""

    @abstractmethod
    def findings(self) -> list[Finding]:
        """What this machine offers this engine. Raises nothing: a problem is a finding."""

    @abstractmethod
    def start(self) -> Started:
        """Starts the launcher. Raises EngineUnavailable when this machine has none."""
