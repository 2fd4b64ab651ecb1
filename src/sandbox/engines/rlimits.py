"""Limits that the kernel keeps per process or per user namespace."""

from __future__ import annotations

import resource

from sandbox.errors import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Limits
    from sandbox.engines.cgroup_limits import Group
    from sandbox.plan.plan import Plan


def rlimits(
    limits: Limits, pids: int | None, group: Group | None, address_space: int | None = None
) -> list[list[int]]:
    """The guest's `rlimits`: what no control group enforces. Never above our own hard limits.

    `address_space`: what a process needs for the limit on memory, if that is more."""
    wanted: list[tuple[int, int | None]] = [
        (resource.RLIMIT_FSIZE, limits.file_size),
        (resource.RLIMIT_NOFILE, limits.open_files),
    ]
    if group is None or not group.holds("memory"):
        wanted.append((resource.RLIMIT_AS, address_space or limits.memory))
    if group is None or not group.holds("pids"):
        # Counted per user namespace: exactly this sandbox's processes. The guest is one of them.
        wanted.append((resource.RLIMIT_NPROC, None if pids is None else pids + 1))
    # Counted for all processes of our user: a tenant that used them up would leave none for the host's programs.
    wanted += [(kind, _half(kind)) for kind in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE)]
    return [[kind, most, most] for kind, value in wanted if value is not None for most in (_allowed(kind, value),)]


UNHELD = Message(
    "limits.memory: no control group can be made here, so the limit applies to each process, and separately to all "
    "files in the sandbox's own directories; `sandbox doctor` shows how to get one"
)


def without_group(plan: Plan, group: Group | None) -> str | None:
    """Where no control group counts memory: limits what RLIMIT_AS does not count, and returns what is not enforced.

    In-memory file systems share the limit. Memory that is neither such a file nor private (memfd, System V segments)
    cannot be created: programs then use a file in /tmp or /dev/shm, which is counted.
    """
    memory = plan.limits.memory
    if memory is None or (group is not None and group.holds("memory")):
        return None
    plan.share_memory(memory)
    plan.count_memory = plan.walls
    return UNHELD


def _half(kind: int) -> int | None:
    hard = resource.getrlimit(kind)[1]
    return None if hard == resource.RLIM_INFINITY else hard // 2


def _allowed(kind: int, value: int) -> int:
    hard = resource.getrlimit(kind)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)
