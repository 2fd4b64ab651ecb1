"""Limits on a whole sandbox by control groups: v2 where it is delegated to us, v1 as root.

A group's directory is named for its owner (`sandbox-<id>.<pid>.<start time>`), so that the next start can tell the ones
that a killed owner left behind, and take them away.
"""

from __future__ import annotations

import os

from sandbox.errors import LimitUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sandbox.config.model import Limits

PREFIX = "sandbox-"
_PERIOD = 100_000  # microseconds over which a share of the processors is counted


class Group:
    """The control group of one sandbox: one directory in v2, one per controller in v1."""

    def __init__(self, directories: dict[str, str], version: int) -> None:
        self._directories = directories  # controller -> its directory
        self._version = version
        self._kills = 0

    def holds(self, controller: str) -> bool:
        return controller in self._directories

    def apply(self, limits: Limits, pids: int | None) -> None:
        """Sets the limits. Raises LimitUnavailable when the kernel refuses one."""
        v2 = self._version == 2
        if limits.memory is not None:
            self._set("memory", "memory.max" if v2 else "memory.limit_in_bytes", limits.memory)
            # Without this the limit would only push tenants into swap. Absent where the kernel accounts no swap.
            swap, most = ("memory.swap.max", 0) if v2 else ("memory.memsw.limit_in_bytes", limits.memory)
            if os.path.exists(f"{self._directories['memory']}/{swap}"):
                self._set("memory", swap, most)
        if limits.cpus is not None:
            quota = max(1000, int(limits.cpus * _PERIOD))
            if v2:
                self._set("cpu", "cpu.max", f"{quota} {_PERIOD}")
            else:
                self._set("cpu", "cpu.cfs_period_us", _PERIOD)
                self._set("cpu", "cpu.cfs_quota_us", quota)
        if pids is not None:
            self._set("pids", "pids.max", pids + 1)  # the guest is one of them

    def add(self, pid: int) -> None:
        """Moves a process in; what it starts from then on is in too."""
        for directory in set(self._directories.values()):
            _write(f"{directory}/cgroup.procs", pid)

    def out_of_memory(self) -> str | None:
        """Words about the kills since the last call, or None."""
        if not self.holds("memory"):
            return None
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        kills = _table(f"{self._directories['memory']}/{name}").get("oom_kill", 0)
        if kills <= self._kills:
            return None
        self._kills = kills
        limit, peak = ("memory.max", "memory.peak") if self._version == 2 else _V1_MEMORY
        return (
            f"out of memory: the limit is {_megabytes(self._read('memory', limit))}, "
            f"the peak was {_megabytes(self._read('memory', peak))}"
        )

    def remove(self) -> None:
        """Takes the group away; every process in it has ended. Never raises: the next start sweeps what stays."""
        for directory in set(self._directories.values()):
            _remove(directory)

    def _set(self, controller: str, name: str, value: object) -> None:
        try:
            _write(f"{self._directories[controller]}/{name}", value)
        except OSError as problem:
            raise LimitUnavailable(f"the kernel refused {name} = {value}: {problem.strerror}") from problem

    def _read(self, controller: str, name: str) -> int:
        try:
            return int(_text(f"{self._directories[controller]}/{name}"))
        except (OSError, ValueError):
            return 0


_V1_MEMORY = ("memory.limit_in_bytes", "memory.max_usage_in_bytes")


def hold(limits: Limits, pids: int | None, identity: str) -> Group | None:
    """A group that holds the limits, or None when none of them needs one, or rlimits must do.

    `pids` is the limit on processes, asked for or by default. Raises LimitUnavailable for a limit that was asked for
    and that neither a group nor an rlimit can hold here.
    """
    wanted = {
        name for name, value in (("memory", limits.memory), ("cpu", limits.cpus), ("pids", pids)) if value is not None
    }
    if os.geteuid() != 0:
        wanted -= {"pids"}  # RLIMIT_NPROC counts per user namespace, so it holds for exactly one sandbox
    if not wanted:
        return None
    name = f"{PREFIX}{identity}.{os.getpid()}.{start_time(os.getpid())}"
    group = _version2(wanted, name) or _version1(wanted, name)
    if group is None:
        _refuse_what_needs_one(limits)
        return None
    try:
        group.apply(limits, pids if group.holds("pids") else None)
    except BaseException:
        group.remove()
        raise
    return group


def _refuse_what_needs_one(limits: Limits) -> None:
    """Memory falls back to an rlimit per process; the rest has no fallback."""
    root = os.geteuid() == 0
    for name, value, needs in (("cpus", limits.cpus, True), ("pids", limits.pids, root)):
        if value is not None and needs:
            raise LimitUnavailable(
                f"limits.{name} needs a control group, and none can be made here: no cgroup v2 is delegated to this "
                "user (try `systemd-run --user --scope -p Delegate=yes …`) and v1 needs root. `sandbox doctor` tells."
            )


# -- version 2


def _version2(wanted: set[str], name: str) -> Group | None:
    parent = _delegated(wanted)
    if parent is None:
        return None
    _sweep(parent)
    directory = f"{parent}/{name}"
    try:
        os.mkdir(directory)
    except OSError:
        return None
    return Group(dict.fromkeys(wanted, directory), 2)


def _delegated(wanted: set[str]) -> str | None:
    """The nearest ancestor of our own group in which we may make groups with these controllers."""
    root = _mounted("cgroup2")
    own = next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::")), None)
    if root is None or own is None:
        return None
    directory = os.path.normpath(root + own)
    while len(directory) > len(root):
        # Not our own group: with processes in it, it can have no limited children.
        directory = os.path.dirname(directory)
        if not os.access(directory, os.W_OK) or not os.access(f"{directory}/cgroup.procs", os.W_OK):
            continue
        if wanted <= _words(f"{directory}/cgroup.subtree_control"):
            return directory
        if wanted <= _words(f"{directory}/cgroup.controllers"):
            try:
                _write(f"{directory}/cgroup.subtree_control", " ".join(f"+{one}" for one in sorted(wanted)))
            except OSError:
                continue
            return directory
    return None


# -- version 1


def _version1(wanted: set[str], name: str) -> Group | None:
    if os.geteuid() != 0:
        return None
    own: dict[str, str] = {}
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    made: dict[str, str] = {}
    for controller in sorted(wanted):
        mount = _mounted("cgroup", controller)
        if mount is None or controller not in own:
            _undo(made)
            return None
        parent = os.path.normpath(mount + own[controller])
        _sweep(parent)
        try:
            os.mkdir(f"{parent}/{name}")
        except FileExistsError:
            pass  # controllers mounted together share a directory
        except OSError:
            _undo(made)
            return None
        made[controller] = f"{parent}/{name}"
    return Group(made, 1)


def _undo(made: dict[str, str]) -> None:
    for directory in set(made.values()):
        _remove(directory)


# -- what owners that were killed left behind


def sweep() -> None:
    """Takes away every group, of either version, whose owner is gone."""
    parents = {parent for wanted in ({"memory"}, {"cpu"}, {"pids"}) if (parent := _delegated(wanted)) is not None}
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            mount = _mounted("cgroup", controller) if controller in ("memory", "cpu", "pids") else None
            if mount is not None:
                parents.add(os.path.normpath(mount + path))
    for parent in parents:
        _sweep(parent)


def _sweep(parent: str) -> None:
    try:
        names = os.listdir(parent)
    except OSError:
        return
    for name in names:
        if name.startswith(PREFIX) and not _owner_lives(name):
            _remove(f"{parent}/{name}")


def _owner_lives(name: str) -> bool:
    try:
        _, pid, started = name.rsplit(".", 2)
        return start_time(int(pid)) == int(started)
    except ValueError:
        return True  # not one of ours


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when there is none. With the pid it names it for good."""
    try:
        # The name may hold anything, so count from behind it.
        return int(_text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[19])
    except (OSError, IndexError):
        return 0


def _remove(directory: str) -> None:
    # A process that has just been reaped may linger in the group for a moment.
    for _ in range(200):
        try:
            os.rmdir(directory)
        except FileNotFoundError:
            return
        except OSError:
            import select

            select.select([], [], [], 0.001)
        else:
            return


# -- reading


def _mounted(kind: str, controller: str | None = None) -> str | None:
    for line in _lines("/proc/self/mounts"):
        _, place, found, options, *_ = line.split(" ")
        if found == kind and (controller is None or controller in options.split(",")):
            return place
    return None


def _text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 2**20).decode(errors="replace")
    finally:
        os.close(fd)


def _lines(path: str) -> list[str]:
    try:
        return _text(path).splitlines()
    except OSError:
        return []


def _words(path: str) -> set[str]:
    return set(" ".join(_lines(path)).split())


def _table(path: str) -> dict[str, int]:
    pairs = (line.split() for line in _lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _write(path: str, value: object) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
