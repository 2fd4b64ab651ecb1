"""Which engine builds the walls, and what a mode adds to the configuration."""

from __future__ import annotations

import sys

from sandbox.config.modes import MAX_LIMITS, default_limit, without_walls
from sandbox.engines.named import named
from sandbox.errors import EngineUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Config
    from sandbox.engines.base import Engine


def engine_name(config: Config) -> str:
    """The name of the engine for this configuration on this platform."""
    if without_walls(config):
        return "none"
    if config.engine == "microvm":
        return _machine_engine()
    if config.engine == "auto":
        return "seatbelt" if sys.platform == "darwin" else _on_linux(config.mode)
    return config.engine


def _on_linux(mode: str) -> str:
    """Process walls, else a container engine that answers; for `max` a microVM, if this host accelerates them.
    Without any of these, bubblewrap's error says what to install."""
    from sandbox.engines.bubblewrap import find_bwrap

    if find_bwrap() is not None:
        return "qemu" if mode == "max" and _runs_machines() else "bubblewrap"
    from sandbox.engines.auto import fallback

    return fallback() or "bubblewrap"


def _machine_engine() -> str:
    """QEMU, which can do more (checkpoints, machines without KVM); Firecracker if the host has only that."""
    from sandbox.engines.qemu.command import find_qemu

    try:
        find_qemu()
    except EngineUnavailable:
        from sandbox.engines.firecracker.engine import check_host

        try:
            check_host()
        except EngineUnavailable:
            return "qemu"  # its own error says what is missing
        return "firecracker"
    return "qemu"


def _runs_machines() -> bool:
    """Whether this machine can run microVMs with acceleration. Slow, emulated ones must be asked for."""
    from sandbox.engines.machine.acceleration import why_not
    from sandbox.engines.machine.kernel import find_kernel
    from sandbox.engines.qemu.command import find_qemu

    try:
        find_qemu(), find_kernel()
    except EngineUnavailable:
        return False
    return why_not() is None


def choose(config: Config) -> Engine:
    """The engine for this configuration. Raises EngineUnavailable if this platform cannot have it."""
    return named(engine_name(config), config.runtime)


def default_pids(config: Config) -> int | None:
    """The limit on processes: the configured one, or else the mode's."""
    asked = config.limits.pids
    return asked if asked is not None else default_limit(config.mode, "pids")  # type: ignore[return-value]


def with_mode_defaults(config: Config) -> Config:
    """A copy of `config` with what the mode adds. In `max`, changes to the project stay in a layer of their own, and
    limits that were not set get values. A branch is worked on in such a layer too."""
    if config.mode != "max" and config.filesystem.branch is None:
        return config
    config = config.copy()
    config.filesystem.overlay = True
    if config.mode != "max":
        return config
    config.caches = []
    for name, most in MAX_LIMITS.items():
        if getattr(config.limits, name) is None:
            setattr(config.limits, name, most)
    return config
