"""Where control groups can be created on this machine: in v2 where a subtree is delegated to us, in v1 as root.

A group's directory is named after its owner (`sandbox-<id>.<pid>.<start time>`), so that the next start can find and
remove the groups of killed owners.

In v2 the limits are set on that directory, and the processes are in a group below it that has the controllers enabled
too. This shows systemd that the controllers are in use. Otherwise it would disable them in the groups above, because
none of *its* units needs them, and the limits would vanish with the next unit that it starts.
"""

from __future__ import annotations

import errno
import os
import sys

PREFIX = "sandbox-"
INSIDE = "tenants"  # v2: where the processes of a sandbox's group are
ASIDE = "sandboxes-owners"  # v2: takes the delegated group's own processes, which may not share it with limited groups


def make(wanted: set[str], identity: str) -> tuple[dict[str, str], int] | None:
    """Creates a group with these controllers. Returns its directory for each, and the version; None on failure."""
    name = f"{PREFIX}{identity}.{os.getpid()}.{start_time(os.getpid())}"
    directory = _version2(wanted, name)
    if directory is not None:
        return dict.fromkeys(wanted, directory), 2
    directories = _version1(wanted, name)
    return None if directories is None else (directories, 1)


# -- version 2


def _version2(wanted: set[str], name: str) -> str | None:
    for parent, own in _places():
        if not _switch_on(parent, wanted, own):
            continue
        _sweep(parent)
        directory = f"{parent}/{name}"
        try:
            os.mkdir(directory)
            _enable(directory, wanted)
            os.mkdir(f"{directory}/{INSIDE}")
        except OSError:
            remove(directory)
            continue
        return directory
    return None


def _places() -> list[tuple[str, bool]]:
    """The groups in which we may make others, best first, and whether each is our own.

    Our own comes first if systemd marked it as delegated: then our limits apply to our sandboxes as well. Otherwise the
    groups above it come first, nearest first, since no process has to move; our own is last, and all a container has.
    """
    root = mounted("cgroup2")
    own = next((line[3:] for line in lines("/proc/self/cgroup") if line.startswith("0::")), None)
    if root is None or own is None or own.startswith("/.."):
        return []
    directory = top = os.path.normpath(root + own)
    places = []
    while len(directory) > len(root):
        directory = os.path.dirname(directory)
        places.append((directory, False))
    places.insert(0 if _marked(top) else len(places), (top, True))
    return [(one, ours) for one, ours in places if _writable(one)]


def _marked(directory: str) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return os.getxattr(directory, "user.delegate") == b"1"
    except OSError:
        return False


def _writable(directory: str) -> bool:
    # Moving a process needs write access to the common ancestor of both groups.
    return os.access(directory, os.W_OK) and os.access(f"{directory}/cgroup.procs", os.W_OK)


def _switch_on(directory: str, wanted: set[str], own: bool) -> bool:
    """Enables controllers for the groups in a directory. Returns False if that cannot be done."""
    if wanted <= words(f"{directory}/cgroup.subtree_control"):
        return True
    if not wanted <= words(f"{directory}/cgroup.controllers"):
        return False
    for _ in range(8):  # others may start processes meanwhile
        try:
            _enable(directory, wanted)
        except OSError as problem:
            if not own or problem.errno != errno.EBUSY or not _step_aside(directory):
                return False
        else:
            return True
    return False


def _enable(directory: str, controllers: set[str]) -> None:
    write(f"{directory}/cgroup.subtree_control", " ".join(f"+{one}" for one in sorted(controllers)))


def _step_aside(directory: str) -> bool:
    """Moves the processes of our own group into a group below it: a group has either processes or limited groups."""
    aside = f"{directory}/{ASIDE}"
    try:
        os.mkdir(aside)
    except FileExistsError:
        pass
    except OSError:
        return False
    for pid in lines(f"{directory}/cgroup.procs"):
        try:
            write(f"{aside}/cgroup.procs", pid)
        except ProcessLookupError:
            pass
        except OSError:
            return False
    return True


# -- version 1


def _version1(wanted: set[str], name: str) -> dict[str, str] | None:
    if os.geteuid() != 0:
        return None
    own: dict[str, str] = {}
    for line in lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    made: dict[str, str] = {}
    for controller in sorted(wanted):
        mount = mounted("cgroup", controller)
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
    return made


def _undo(made: dict[str, str]) -> None:
    for directory in set(made.values()):
        remove(directory)


# -- what killed owners left behind


def sweep() -> None:
    """Removes every group, of either version, whose owner has ended."""
    parents = {place for place, _ in _places()}
    for line in lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            mount = mounted("cgroup", controller) if controller in ("memory", "cpu", "pids") else None
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
            remove(f"{parent}/{name}")


def _owner_lives(name: str) -> bool:
    try:
        _, pid, started = name.rsplit(".", 2)
        return start_time(int(pid)) == int(started)
    except ValueError:
        return True  # not ours


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 if it does not exist. With the pid this is unique."""
    try:
        # The program's name may contain anything, so count from where it ends.
        return int(text(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[19])
    except (OSError, IndexError):
        return 0


def remove(directory: str) -> None:
    """Removes a group whose processes have all ended. Never raises: the next start removes what is left."""
    _remove_one(f"{directory}/{INSIDE}")
    _remove_one(directory)


def _remove_one(directory: str) -> None:
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


def mounted(kind: str, controller: str | None = None) -> str | None:
    """Where control groups of that kind (`cgroup`, `cgroup2`) are mounted."""
    for line in lines("/proc/self/mounts"):
        _, place, found, options, *_ = line.split(" ")
        if found == kind and (controller is None or controller in options.split(",")):
            return place
    return None


def text(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 2**20).decode(errors="replace")
    finally:
        os.close(fd)


def lines(path: str) -> list[str]:
    try:
        return text(path).splitlines()
    except OSError:
        return []


def words(path: str) -> set[str]:
    return set(" ".join(lines(path)).split())


def table(path: str) -> dict[str, int]:
    pairs = (line.split() for line in lines(path))
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def write(path: str, value: object) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)
