"""The set-up messages for a machine's guest and for the room around it, from a sandbox's plan."""

from __future__ import annotations

import os
import resource
import time

from sandbox.config.model import Limits
from sandbox.config.paths import is_beneath
from sandbox.engines.machine.room_paths import ADDRESSES_MB, DIRECTORY, MEMORY_MB, OWN_MB
from sandbox.errors import LimitUnavailable
from sandbox.layout.system import LIBRARIES, SYSTEM
from sandbox.plan.mount_operations import Fuse
from sandbox.plan.plan import Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


LEAST_MB = 128  # a stock kernel takes 50 of them
PROVIDED = "--provided="  # before the directory that a provider answers for (guest/share_provided.c)
OWN = ("/tmp", "/run", "/dev/shm")  # scratch directories in the machine's memory: the room's would be slow to reach


def memory_mb(plan: Plan) -> int:
    """The machine's memory. Raises LimitUnavailable if that is too little for its kernel."""
    asked = -(-(plan.limits.memory or MEMORY_MB << 20) >> 20)
    if asked < LEAST_MB:
        raise LimitUnavailable("limits.memory: a virtual machine needs at least {least} MiB", least=LEAST_MB)
    return asked


def machine_setup(plan: Plan) -> dict[str, Any]:
    """The set-up of the machine's guest, without its identity."""
    scratch = [(path, mode) for path, mode in plan.scratch if path in OWN]
    root = plan.user == "root"
    layered = root or (plan.image is not None and not plan.sealed)  # tenants may change everything, in memory
    system = [] if layered else _system(plan)  # they see everything through the layer
    places = [""] if layered else [*(path for path, _ in scratch), *system]
    seen = _seen_again(plan, root)
    if not layered:  # the home may lie in /tmp
        seen += [*(one.path for one in plan.after_seal), *(path for path, _ in plan.scratch if path not in OWN)]
    return {
        "walls": True,
        "uid": plan.uid,
        "gid": plan.gid,
        "network": plan.network,
        "rlimits": rlimits(plan.limits, plan.pids),
        "loopback_ports": plan.loopback_ports,
        "machine": {
            "root": root,
            **({"layer": plan.image.size if plan.image is not None else 0} if layered else {}),
            "scratch": [[path.encode(), mode, plan.scratch_size] for path, mode in scratch],
            "system": [path.encode() for path in system],
            "stale": [],
            "shown": _nested(seen, places),
        },
    }


def _seen_again(plan: Plan, root: bool) -> list[str]:
    """What the room shows of the host, to be mounted again over directories that the machine has of its own."""
    shown = [bind.target for bind in plan.binds if (bind.writable or not root) and not bind.device]
    shown = [path for path in shown if not path.startswith(DIRECTORY) and not (root and path in SYSTEM)]
    return shown + [one.path for one in plan.served if isinstance(one, Fuse)]


def _nested(seen: list[str], places: list[str]) -> list[bytes]:
    """The outermost of those paths that lie in the machine's own directories."""
    nested = sorted({path for path in seen if any(path.startswith(f"{one}/") for one in places)})
    outermost = [one for one in nested if not any(one.startswith(f"{other}/") for other in nested)]
    return [os.fsencode(path) for path in outermost]


def _system(plan: Plan) -> list[str]:
    """The system directories that the template has in memory, if the room shows the host's own, without covers.

    What is in memory cannot be hidden: if anything in them is covered, the machine sees only what the room shows.
    """
    of_host = [bind.target for bind in plan.binds if bind.source == bind.target]
    shown = [path for path in of_host if path in SYSTEM]
    covered = [one.path for one in (*plan.layers, *plan.covers, *plan.served)]
    if any(path.startswith(f"{one}/") for path in covered for one in shown):
        return []
    hidden = any(is_beneath(LIBRARIES, path) for path in covered)
    return [*shown, LIBRARIES] if shown and LIBRARIES in of_host and not hidden else shown


def rlimits(limits: Limits, pids: int | None) -> list[list[int]]:
    """The limits that the machine's kernel enforces. Memory and processors are limited by the machine's size."""
    wanted = (
        (resource.RLIMIT_FSIZE, limits.file_size),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_NPROC, None if pids is None else pids + 1),  # the guest is one of them
    )
    return [[kind, most, most] for kind, most in wanted if most is not None]


def server_words(plan: Plan) -> list[str]:
    """What the room's file server is told: directories that providers answer for, and those that nothing changes."""
    return [*(PROVIDED + one.path for one in plan.served if isinstance(one, Fuse)), *_fixed(plan)]


def _fixed(plan: Plan) -> list[str]:
    """Directories that nothing on the host changes while the machine lives, so that its kernel may cache them."""
    if plan.image is not None:
        return _fixed_of_image(plan, plan.image.source)
    return [bind.target for bind in plan.binds if bind.target in SYSTEM]


def _fixed_of_image(plan: Plan, root: str) -> list[str]:
    """The image's top directories that contain nothing from the host or from this sandbox."""
    mounted = (*plan.layers, *plan.covers, *plan.served, *plan.after_seal)
    others = [*(bind.target for bind in plan.binds), *(one.path for one in mounted)]
    others += [*(path for path, _, _ in plan.files), *(path for path, _ in plan.scratch)]
    tops = {path.split("/")[1] for path in others}
    return [f"/{name}" for name in os.listdir(root) if name not in tops]


def identity_of(plan: Plan) -> dict[str, object]:
    """What is different for every machine."""
    return {"entropy": os.urandom(64), "hostname": plan.hostname, "time_ns": time.time_ns()}


def limit_room(plan: Plan) -> None:
    """Sets the limits of the room around a machine; the machine's own kernel enforces the others."""
    limits = Limits()
    limits.cpus = plan.limits.cpus
    limits.memory = None if plan.limits.memory is None else plan.limits.memory + (OWN_MB << 20)
    plan.limits, plan.pids = limits, None
    if plan.limits.memory is not None:
        plan.address_space = plan.limits.memory + (ADDRESSES_MB << 20)
