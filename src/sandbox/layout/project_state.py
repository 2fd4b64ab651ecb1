"""Directories of the project to which a program writes its own settings, such as `.claude`: `state.project`.

Programs on the host act on what is there, so tenants must not change it. They get an overlay instead. Below is the
project's directory, frozen. Above is a layer that is kept for this project, in the state, where only the next sandbox
reads it. `of_project` in `state/paths.py` says where; files and locks there are as in `caches.py`.
"""

from __future__ import annotations

import os

from sandbox.config.paths import is_beneath
from sandbox.errors import Message
from sandbox.layout.caches import KeptLayers
from sandbox.plan.mount_operations import Bind, CacheOverlay, Cover, Unmount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sandbox.plan.mount_operations import Operation
    from sandbox.plan.plan import Plan

STAGE = "/.project-state"  # removed before any tenant exists


class ProjectState(KeptLayers):
    """The layers of one sandbox; `close` gives them back."""

    def __init__(self, kept: str, root: str, entry: str) -> None:
        """`entry`: the sandbox's directory in the registry. Raises OSError."""
        super().__init__(kept, root, lambda: f"{entry}/project-state")
        self._paths: list[str] = []  # what has a layer, if the kernel could make it

    def furnish(self, plan: Plan, names: Sequence[str]) -> None:
        """Adds the layers to the plan, which must already hide and freeze everything else."""
        for name in names:
            path = f"{plan.directory}/{name}"
            if not _free(plan, path):
                continue
            stage = f"{STAGE}-{len(self._paths)}"
            plan.show(self._layer(name), stage, True)
            _lay(plan, path, stage)
            plan.writable.append(path)
            self._paths.append(path)

    def notices(self, pid: int | None) -> Iterator[Message]:
        """What the person should know, once the walls are built. `pid`: a process inside."""
        names = [os.path.basename(path) for path in self._paths]
        if names and not _overlays(pid, self._paths):
            yield impossible(names)
        elif names and self._own is not None:
            yield Message(
                "another sandbox uses what is kept for {directories} of this project: this one starts without it, and "
                "what it writes there is lost when it ends",
                directories=_listed(names),
            )


def _lay(plan: Plan, path: str, stage: str) -> None:
    """Plans the overlay on `path`. If the kernel cannot make it, the directory stays frozen.

    An overlay shows the directory below it without the mounts there, so covers of blocked files come after it. Tenants
    may have put something else at a cover's path in an earlier run, so each covers whatever it finds, which hides the
    file as well. What was frozen in the directory needs no mount: nothing is written to it.
    """
    beneath = [one for one in plan.covers if one.path != path and is_beneath(one.path, path)]
    hidden = [one for one in beneath if isinstance(one, Cover)]
    for one in hidden:
        one.inode = 0
    plan.covers = [one for one in plan.covers if one not in beneath]
    if not any(one.path == path and isinstance(one, Bind) and one.read_only for one in plan.covers):
        plan.covers.append(Bind(path, path, read_only=True, optional=True))
    plan.covers += (CacheOverlay(path, [path], stage), Unmount(stage), *hidden)


def _free(plan: Plan, path: str) -> bool:
    """Whether it is a directory of the project that the plan does not use otherwise."""
    if os.path.islink(path) or not os.path.isdir(path):
        return False
    shown = [one.target for one in plan.binds] + [one for one, _ in (*plan.scratch, *plan.links)]
    others = [one.path for one in (*plan.layers, *plan.served, *plan.after_seal) if one.path != plan.directory]
    others += (one.path for one in plan.covers if not isinstance(one, Cover) and not _onto_itself(one))
    if any(is_beneath(one, path) for one in (*shown, *others, *(target for _, target in plan.cached))):
        return False
    return not any(isinstance(one, Cover) and is_beneath(path, one.path) for one in plan.covers)


def _onto_itself(one: Operation) -> bool:
    return isinstance(one, Bind) and one.source == one.path


def impossible(names: Sequence[str]) -> Message:
    """The message for the person if no layer is possible."""
    return Message(
        "{directories} of the project cannot be written inside: no overlay is possible here",
        directories=_listed(names),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"{name}/" for name in names)


def _overlays(pid: int | None, paths: Sequence[str]) -> bool:
    """Whether an overlay is mounted on each of the paths. True if we may not look."""
    try:
        with open(f"/proc/{pid}/mountinfo", "rb") as file:
            lines = [line.split(b" ") for line in file]
    except OSError:
        return True
    mounted = {line[4] for line in lines if line[line.index(b"-") + 1] == b"overlay"}
    return mounted.issuperset(_escaped(path) for path in paths)


def _escaped(path: str) -> bytes:
    """As the kernel writes a path there."""
    found = os.fsencode(path)
    for sign in (b"\\", b" ", b"\t", b"\n"):
        found = found.replace(sign, b"\\%03o" % sign[0])
    return found
