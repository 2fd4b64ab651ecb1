"""What only some sandboxes have: directories of their own, an image, kept state, a branch, questions about files.

This is imported when the configuration asks for one of them. Each part adds to `_endings` what closes it.
"""

from __future__ import annotations

import os
from functools import partial

from sandbox.config.home import home
from sandbox.events import event

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.building import Building
    from sandbox.events import Events
    from sandbox.guards.file_asks import FileAsks
    from sandbox.layout.system import System
    from sandbox.serving import Serving
    from sandbox.vfs.mounts import Mounts


def own_directories(building: Building) -> Mounts:
    """The directories that are more than the host's files: see `vfs/arrange.py`."""
    from sandbox.vfs.mounts import Mounts

    tell = partial(tell_of_file, building._events)
    guard = partial(building._guard.serve, building.config)
    mounts = Mounts(building.config, building._providers, hooks=building._hooks, emit=tell, guard=guard)
    building._endings.append(mounts.close)
    return mounts


def image_system(building: Building) -> System | None:
    """The image at `/`, held until the end so that nobody removes it. In mode `max` nothing in it can be changed."""
    from sandbox.config.image_choice import asked_image

    if asked_image(building.config) is None:
        return None
    from sandbox.images.obtain import obtain
    from sandbox.layout.image_system import ImageSystem

    image = obtain(building.config)
    if image is None:
        return None
    building._endings.append(image.release)
    return ImageSystem(image, sealed=building.config.mode == "max")


def kept_in_home(building: Building) -> list[tuple[str, str]]:
    """The directories of the tenants' home that are kept: each path on the host, and inside."""
    from sandbox.layout.paths import project_root
    from sandbox.state.paths import kept

    return kept(building.config.state, project_root(building.config.filesystem))


def layer_of_changes(building: Building) -> str | None:
    """The directory that keeps an overlay project's changes."""
    if not building.config.filesystem.overlay:
        return None
    if building._kept_layer is not None:
        return building._kept_layer
    from sandbox.vfs.workspace import Workspace

    if building._origin is None:
        return Workspace.begin(home(), building.id, building._plan.directory).directory
    layer = Workspace.begin(home(), building.id, building._plan.directory, building._origin.workspace).directory
    building._origin.lay(layer)
    return layer


def keep_project_state(building: Building) -> None:
    """Keeps what an agent writes to its directories in the project in a layer of its own: docs/agents.md."""
    from sandbox.layout.project_state import ProjectState
    from sandbox.state.paths import of_project

    root = building._plan.directory
    building._project_state = ProjectState(of_project(building.config.state, root), root, building._register().path)
    building._endings.append(building._project_state.close)
    building._project_state.furnish(building._plan, building._layered())


def find_branch(building: Building, name: str) -> None:
    """Finds the sandbox's own branch, and marks it as in use: docs/branches.md."""
    from sandbox.branches.target import Target

    if building._kept_layer is not None:
        building._branch = Target.load(building._kept_layer)
        return
    from sandbox.branches.branch_lock import InUse
    from sandbox.layout.paths import project_root

    building._branch = Target.find(project_root(building.config.filesystem), name)
    building._branch_in_use = InUse(home(), building._branch)


def outside_repository(building: Building, layer: str | None) -> tuple[str, str] | None:
    """A repository's directory outside the project needs a layer of its own: that directory, and where the layer is."""
    if building._branch is None or layer is None:
        return None
    from sandbox.branches.git_inside import UNSIGNED

    if "GIT_CONFIG_COUNT" not in building._plan.environment:
        building._plan.environment.update(UNSIGNED)
    if building._kept_layer is None:
        building._branch.save(layer)
    if building._branch.inside_project:
        return None
    state = os.path.join(layer, "git")
    os.makedirs(state, 0o700, exist_ok=True)
    return building._branch.common, state


def file_asks(building: Serving, pid: int) -> FileAsks:
    """Asks the owner when a blocked file is touched."""
    from sandbox.audit import file_entries
    from sandbox.guards.file_asks import FileAsks

    patterns, seconds = building.config.filesystem.blocked_patterns, building.config.network.ask_timeout
    tell = partial(file_entries.covered, building.record)
    asking = building._asking
    found = FileAsks(lambda: asking().asks(), pid, patterns, seconds, building._guard.lifted, tell)
    building._endings.append(found.close)
    return found


def report_changes(building: Serving) -> None:
    """Watches the directories that the kernel serves; those served through FUSE report their changes themselves."""
    from sandbox.vfs.file_events import FileEvents

    ways = building._mounts.ways if building._mounts else {}
    trees: dict[str, int] = {}
    for path in (building._plan.directory, *ways):
        if ways.get(path) != "FUSE" and path not in trees:
            flags = os.O_RDONLY | os.O_DIRECTORY
            trees[path] = building._running.file("open", os.fsencode(path), flags=flags)[1][0]
    building._endings.append(FileEvents(trees, partial(tell_of_file, building._events)).close)


def tell_of_file(events: Events, operation: str, path: str, size: int) -> None:
    """Emits a change to a file as an event."""
    events.emit(event("file", op=operation, path=path, size=size))
