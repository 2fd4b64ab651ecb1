"""The arguments of Apple's `container run`. The same plan gives the same arguments: tests/engines/golden."""

from __future__ import annotations

import os

from sandbox.config.paths import is_beneath
from sandbox.engines.container.arguments import BECOME, CAPABILITIES, SHELF, STAGE
from sandbox.errors import EngineUnavailable, LimitUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sandbox.plan.plan import Plan

FILES = 65536  # descriptors for the guest: it holds those of every command and connection
_MIB = 1 << 20


def run_arguments(plan: Plan, *, shelf: str, image: str, labels: Mapping[str, str]) -> list[str]:
    """`shelf` is the host's directory with the guest. Raises EngineUnavailable for a path that cannot be named,
    LimitUnavailable for a limit that the engine would round."""
    return [
        *("run", "--interactive", "--rm", "--progress", "none", "--name", plan.container_name),
        *(word for name, value in labels.items() for word in ("--label", f"{name}={value}")),
        # The guest makes every address local to the machine, and carries what tenants connect to through its stdout.
        *("--network", "none", "--no-dns", "--user", "0:0", "--workdir", "/"),
        *("--cap-drop", "ALL"),
        *(word for one in (*CAPABILITIES, *BECOME) for word in ("--cap-add", one)),
        *_limits(plan),
        *("--ulimit", f"nofile={FILES}:{FILES}"),
        *_volume(shelf, SHELF, writable=False),
        *(word for source, writable in shared(plan) for word in _volume(source, STAGE + source, writable=writable)),
        *("--entrypoint", f"{SHELF}/guest", image, "--container-stdio"),
    ]


def shared(plan: Plan) -> list[tuple[str, bool]]:
    """What the machine is given of the host's files: the outermost of the paths that the plan shows, and whether
    anything in them is written to. The guest shows no more of them than the plan says."""
    image = [(plan.image.source, False)] if plan.image is not None else []
    shown = [*((bind.source, bind.writable) for bind in plan.binds), *image]
    paths = sorted({path for path, _ in shown}, key=lambda path: path.split("/"))
    outermost: list[str] = []
    for path in paths:
        if not outermost or not is_beneath(path, outermost[-1]):
            outermost.append(path)
    return [(one, any(writable and is_beneath(path, one) for path, writable in shown)) for one in outermost]


def _volume(source: str, target: str, *, writable: bool) -> tuple[str, str]:
    if ":" in source or not source.isprintable() or source == "/":  # colons separate the parts
        raise EngineUnavailable("{path!r} cannot be named to a container engine; rename it", path=source)
    return "--volume", f"{source}:{target}" if writable else f"{source}:{target}:ro"


def _limits(plan: Plan) -> list[str]:
    """The machine's size. (The guest limits processes.)"""
    words: list[str] = []
    memory, cpus = plan.limits.memory, plan.limits.cpus
    if cpus is not None:
        if cpus != int(cpus):
            raise LimitUnavailable(
                "apple-container cannot hold limits.cpus: {cpus:g} here: a machine has whole processors", cpus=cpus
            )
        words += ["--cpus", str(int(cpus))]
    if memory is not None:
        if memory % _MIB:
            raise LimitUnavailable(
                "apple-container cannot hold limits.memory: {memory} here: it counts in whole mebibytes", memory=memory
            )
        words += ["--memory", f"{memory // _MIB}M"]
    return words


def refuse_missing(plan: Plan) -> None:
    """Raises EngineUnavailable for a path that is not there any more; the engine would make a directory of it."""
    for path, _ in shared(plan):
        if not os.path.lexists(path):
            raise EngineUnavailable("{path!r} does not exist", path=path)
