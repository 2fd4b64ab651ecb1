"""The engines by their names."""

from __future__ import annotations

from sandbox.errors import EngineUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.engines.base import Engine


def named(name: str, runtime: str | None = None) -> Engine:
    """The engine of that name. `runtime` is for containers. Raises EngineUnavailable for an unknown name."""
    if name == "bubblewrap":
        from sandbox.engines.bubblewrap import Bubblewrap

        return Bubblewrap()
    if name == "none":
        from sandbox.engines.none import NoWalls

        return NoWalls()
    if name == "seatbelt":
        from sandbox.engines.seatbelt import Seatbelt

        return Seatbelt()
    if name == "qemu":
        from sandbox.engines.qemu.engine import Qemu

        return Qemu()
    if name == "firecracker":
        from sandbox.engines.firecracker.engine import Firecracker

        return Firecracker()
    if name in ("docker", "podman"):
        from sandbox.engines.container.engine import ContainerEngine

        return ContainerEngine(name, runtime)
    if name == "apple-container":
        from sandbox.engines.apple.engine import AppleContainer

        return AppleContainer(runtime)
    raise EngineUnavailable("this release has no {name} engine; use bubblewrap (`engine: bubblewrap`)", name=name)
