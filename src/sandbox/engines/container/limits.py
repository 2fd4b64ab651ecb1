"""A container's limits: refused where the engine would drop them silently, and read back once it runs."""

from __future__ import annotations

import os

from sandbox.engines import cgroup_tree as tree
from sandbox.engines.cgroup_limits import Group
from sandbox.errors import LimitUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.engines.container.info import Info
    from sandbox.plan.plan import Plan


def refuse_unheld(plan: Plan, info: Info, name: str) -> None:
    """Raises LimitUnavailable for a limit that this engine cannot enforce here. (The guest can limit processes.)"""
    asked = {"memory": plan.limits.memory, "cpu": plan.limits.cpus}
    for controller, value in asked.items():
        if value is None or controller in info.controllers:
            continue
        raise LimitUnavailable(
            "{name} cannot hold limits.{limit} here: as an ordinary user it needs control groups of version 2 with the"
            " {controller} controller delegated. Run it as root, or use another engine.",
            name=name,
            limit="cpus" if controller == "cpu" else controller,
            controller=controller,
        )


def group_of(pid: int) -> Group | None:
    """The control group that a process is in; None if that is the root group."""
    found: dict[str, str] = {}
    for line in tree.lines(f"/proc/{pid}/cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            place = tree.mounted("cgroup", controller) if controller in ("memory", "cpu", "pids") else None
            if place is not None and path != "/":
                found[controller] = os.path.normpath(place + path)
    if found:
        return Group(found, 1)
    path = next((line[3:] for line in tree.lines(f"/proc/{pid}/cgroup") if line.startswith("0::")), "/")
    place = tree.mounted("cgroup2")
    if place is None or path == "/":
        return None
    directory = os.path.normpath(place + path)
    return Group(dict.fromkeys(tree.words(f"{directory}/cgroup.controllers"), directory), 2)


def verify(plan: Plan, group: Group | None, by_group: bool, name: str) -> None:
    """Raises LimitUnavailable when the kernel does not enforce the limits that the engine was given. `by_group`: the
    limit on processes is one of them."""
    for controller, most in (
        ("memory", plan.limits.memory),
        ("cpu", plan.limits.cpus),
        ("pids", plan.pids if by_group else None),
    ):
        if most is None:
            continue
        held = group.limit(controller) if group is not None else None
        allowed = most + 1 if controller == "pids" else most * 1.01
        if held is None or held > allowed:
            raise LimitUnavailable(
                "{name} accepted a limit on {what} that the kernel does not enforce: use another engine",
                name=name,
                what={"cpu": "cpus"}.get(controller, controller),
            )
